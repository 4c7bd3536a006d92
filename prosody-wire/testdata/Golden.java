// Writes the golden batches of this folder with the Java client, or reads batches with it and prints what it finds.
//
//   java -cp 'kafka-clients-3.9.1.jar:slf4j-api.jar:lz4-java.jar:snappy-java.jar:zstd-jni.jar' Golden.java write batches
//   java -cp ... Golden.java members members     what members of a group tell each other
//   java -cp ... Golden.java read FILE...
//
// 3.9 is the last version that writes the formats before Kafka 0.11.

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.List;
import java.util.Optional;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Assignment;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Subscription;
import org.apache.kafka.clients.consumer.internals.ConsumerProtocol;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.record.*;
import org.apache.kafka.common.record.Record;

public class Golden {
    static final long BASE = 1000;
    static final long TIME = 1_600_000_000_000L;
    static final long APPEND_TIME = 1_650_000_000_000L;

    public static void main(String[] args) throws Exception {
        if (args[0].equals("write")) {
            write(Path.of(args[1]));
        } else if (args[0].equals("members")) {
            members(Path.of(args[1]));
        } else {
            for (String file : Arrays.copyOfRange(args, 1, args.length)) {
                read(Path.of(file));
            }
        }
    }

    /** A cooperative member of generation 7 in a rack, in every version, and what its leader gives it. */
    static void members(Path folder) throws Exception {
        List<TopicPartition> owned = List.of(new TopicPartition("orders", 0), new TopicPartition("orders", 2), new TopicPartition("users", 1));
        Subscription subscription = new Subscription(List.of("orders", "users"), ByteBuffer.wrap(new byte[] {0, 0, 0, 7}), owned, 7, Optional.of("rack-a"));
        for (short version = 0; version <= 3; version++) {
            save(folder, "subscription-v" + version, ConsumerProtocol.serializeSubscription(subscription, version));
            save(folder, "assignment-v" + version, ConsumerProtocol.serializeAssignment(new Assignment(owned), version));
        }
    }

    static byte[] utf8(String text) {
        return text == null ? null : text.getBytes(StandardCharsets.UTF_8);
    }

    static void write(Path folder) throws Exception {
        for (byte magic = 0; magic <= 2; magic++) {
            for (CompressionType codec : CompressionType.values()) {
                if (codec == CompressionType.ZSTD && magic < 2) {
                    continue;
                }
                String name = "v" + magic + "-" + codec.name;
                save(folder, name, fill(builder(magic, codec, TimestampType.CREATE_TIME, false), magic, 1));
                if (magic > 0) {
                    save(folder, name + "-logappend", fill(builder(magic, codec, TimestampType.LOG_APPEND_TIME, false), magic, 1));
                }
                if (magic == 2 && codec != CompressionType.NONE) {
                    save(folder, name + "-big", fill(builder(magic, codec, TimestampType.CREATE_TIME, true), magic, 20_000));
                }
            }
        }
        for (ControlRecordType type : new ControlRecordType[] {ControlRecordType.ABORT, ControlRecordType.COMMIT}) {
            MemoryRecords marker = MemoryRecords.withEndTransactionMarker(BASE, TIME, 7, 4711L, (short) 3, new EndTransactionMarker(type, 1));
            save(folder, "v2-control-" + type.name().toLowerCase(), marker.buffer());
        }
        ByteBuffer empty = ByteBuffer.allocate(DefaultRecordBatch.RECORD_BATCH_OVERHEAD);
        DefaultRecordBatch.writeEmptyHeader(empty, (byte) 2, 4711L, (short) 3, 40, BASE, BASE + 9, 7, TimestampType.CREATE_TIME, TIME, false, false);
        empty.flip();
        save(folder, "v2-empty", empty);
    }

    static MemoryRecordsBuilder builder(byte magic, CompressionType codec, TimestampType type, boolean transactional) {
        boolean idempotent = transactional;
        return MemoryRecords.builder(ByteBuffer.allocate(1 << 20), magic, Compression.of(codec).build(), type, BASE, APPEND_TIME,
            idempotent ? 4711L : -1L, (short) (idempotent ? 3 : -1), idempotent ? 40 : -1, transactional, false, 7);
    }

    /** Five records: null and empty keys and values, and headers that repeat a key where the format has headers. */
    static ByteBuffer fill(MemoryRecordsBuilder builder, byte magic, int times) {
        String[] keys = {null, "", "key-2", "key-3", "key-4"};
        String[] values = {"value-0", "value-1", null, "", "value-4".repeat(times)};
        for (int i = 0; i < keys.length; i++) {
            Header[] headers = magic < 2 || i % 2 == 0
                ? Record.EMPTY_HEADERS
                : new Header[] {new RecordHeader("a", utf8("1")), new RecordHeader("b", (byte[]) null), new RecordHeader("a", utf8(""))};
            builder.appendWithOffset(BASE + i, TIME + 10 * i, utf8(keys[i]), utf8(values[i]), headers);
        }
        return builder.build().buffer();
    }

    static void save(Path folder, String name, ByteBuffer buffer) throws Exception {
        byte[] bytes = new byte[buffer.remaining()];
        buffer.duplicate().get(bytes);
        Files.write(folder.resolve(name + ".bin"), bytes);
    }

    static void read(Path file) throws Exception {
        MemoryRecords records = MemoryRecords.readableRecords(ByteBuffer.wrap(Files.readAllBytes(file)));
        for (RecordBatch batch : records.batches()) {
            batch.ensureValid();
            System.out.printf("batch %d..%d %s producer %d/%d/%d%n", batch.baseOffset(), batch.lastOffset(), batch.compressionType(),
                batch.producerId(), batch.producerEpoch(), batch.baseSequence());
            for (Record record : batch) {
                StringBuilder headers = new StringBuilder();
                for (Header header : record.headers()) {
                    headers.append(' ').append(header.key()).append('=').append(header.value() == null ? "null" : text(ByteBuffer.wrap(header.value())));
                }
                System.out.printf("%d %d %s %s%s%n", record.offset(), record.timestamp(), text(record.key()), text(record.value()), headers);
            }
        }
    }

    static String text(ByteBuffer bytes) {
        return bytes == null ? "null" : "'" + StandardCharsets.UTF_8.decode(bytes.duplicate()) + "'";
    }
}
