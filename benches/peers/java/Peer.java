// The Java client, on the jars of the server: byte arrays, no deserializers. Compiled by `cargo xtask bench --all-peers`.
//
// produce|consume --bootstrap B --topic T --count N --size S --keys K --partitions P, send … --count N, first … --group G

import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Properties;
import java.util.SplittableRandom;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

public class Peer {
    private static final Duration PATIENCE = Duration.ofSeconds(60);
    private static final int POOL = 1 << 14;
    private static final Map<String, String> OPTIONS = new HashMap<>();

    public static void main(String[] args) throws Exception {
        for (int at = 1; at + 1 < args.length; at += 2) {
            OPTIONS.put(args[at].substring(2), args[at + 1]);
        }
        switch (args[0]) {
            case "produce" -> produce();
            case "consume" -> consume();
            case "send" -> send();
            case "first" -> first();
            default -> throw new IllegalArgumentException(args[0]);
        }
    }

    private static int number(String name) {
        return Integer.parseInt(OPTIONS.get(name));
    }

    private static Properties common() {
        var properties = new Properties();
        properties.put("bootstrap.servers", OPTIONS.get("bootstrap"));
        return properties;
    }

    /** The values of benches/common.rs: JSON with random text. */
    private static byte[][] values(int size) {
        var letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 .";
        var random = new SplittableRandom(1);
        var values = new byte[POOL][];
        for (int id = 0; id < POOL; id++) {
            var text = new StringBuilder(String.format("{\"id\":\"%08d\",\"type\":\"order.created\",\"note\":\"", id));
            while (text.length() + 2 < size) {
                text.append(letters.charAt(random.nextInt(letters.length())));
            }
            values[id] = text.append("\"}").toString().getBytes(StandardCharsets.UTF_8);
        }
        return values;
    }

    private static byte[][] keys(int count) {
        var keys = new byte[count][];
        for (int key = 0; key < count; key++) {
            keys[key] = String.format("key-%06d", key).getBytes(StandardCharsets.UTF_8);
        }
        return keys;
    }

    private static KafkaProducer<byte[], byte[]> producer(String linger) {
        var properties = common();
        properties.put("compression.type", "lz4");
        // Large batches are what makes it fast; at its default of 16 kB it costs twice as much.
        properties.put("batch.size", "1000000");
        properties.put("linger.ms", linger);
        return new KafkaProducer<>(properties, new ByteArraySerializer(), new ByteArraySerializer());
    }

    private static void produce() throws Exception {
        int count = number("count");
        var values = values(number("size"));
        var keys = keys(number("keys"));
        var topic = OPTIONS.get("topic");
        var delivered = new AtomicLong();
        // The compiler of the virtual machine is done after a fifth as many records.
        int warm = count / 5;
        Meter meter = null;
        try (var producer = producer("5")) {
            for (int n = -warm; n < count; n++) {
                if (n == 0) {
                    producer.flush();
                    meter = new Meter();
                }
                var key = keys[(int) (Math.abs(n) * 7_919L % keys.length)];
                producer.send(new ProducerRecord<>(topic, key, values[n & (POOL - 1)]), (written, problem) -> {
                    if (problem == null) {
                        delivered.incrementAndGet();
                    }
                });
            }
        }
        check(delivered.get() == count + warm, "not all were delivered");
        meter.report(count, "");
    }

    private static KafkaConsumer<byte[], byte[]> consumer(Properties properties) {
        properties.put("enable.auto.commit", "false");
        properties.put("auto.offset.reset", "earliest");
        properties.put("max.poll.records", "10000");
        return new KafkaConsumer<>(properties, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    private static void consume() throws Exception {
        int count = number("count");
        var partitions = new TopicPartition[number("partitions")];
        Arrays.setAll(partitions, partition -> new TopicPartition(OPTIONS.get("topic"), partition));
        try (var consumer = consumer(common())) {
            consumer.assign(List.of(partitions));
            // The compiler of the virtual machine is done after one reading.
            consume(consumer, partitions, count);
            consume(consumer, partitions, count);
        }
    }

    private static void consume(KafkaConsumer<byte[], byte[]> consumer, TopicPartition[] partitions, int count) throws Exception {
        var next = new long[partitions.length];
        long seen = 0;
        long bytes = 0;
        var meter = new Meter();
        consumer.seekToBeginning(List.of(partitions));
        while (seen < count) {
            for (ConsumerRecord<byte[], byte[]> record : consumer.poll(PATIENCE)) {
                check(record.offset() == next[record.partition()]++, "a gap");
                bytes += record.key().length + record.value().length;
                seen++;
            }
        }
        meter.report(seen, ",\"bytes\":" + bytes);
    }

    private static void send() throws Exception {
        int count = number("count");
        var values = values(100);
        var keys = keys(16);
        var took = new double[count];
        var meter = new Meter();
        try (var producer = producer("0")) {
            for (int n = 0; n < count; n++) {
                long start = System.nanoTime();
                producer.send(new ProducerRecord<>(OPTIONS.get("topic"), keys[n % 16], values[n & (POOL - 1)])).get();
                took[n] = (System.nanoTime() - start) / 1e3;
            }
        }
        Arrays.sort(took);
        meter.report(count, String.format(Locale.ROOT, ",\"p50_us\":%.1f", took[count / 2]));
    }

    private static void first() throws Exception {
        var meter = new Meter();
        long start = System.nanoTime();
        var properties = common();
        properties.put("group.id", OPTIONS.get("group"));
        var consumer = consumer(properties);
        consumer.subscribe(List.of(OPTIONS.get("topic")));
        while (consumer.poll(PATIENCE).isEmpty()) {
            check(System.nanoTime() - start < PATIENCE.toNanos(), "no record");
        }
        double first = (System.nanoTime() - start) / 1e6;
        long closing = System.nanoTime();
        consumer.commitSync();
        consumer.close();
        double closed = (System.nanoTime() - closing) / 1e6;
        meter.report(1, String.format(Locale.ROOT, ",\"first_ms\":%.1f,\"close_ms\":%.1f", first, closed));
    }

    private static void check(boolean holds, String problem) {
        if (!holds) {
            throw new IllegalStateException(problem);
        }
    }

    /** Wall clock and the CPU time of all threads since it was made; the JVM's start is not counted. */
    private static class Meter {
        private final long start = System.nanoTime();
        private final double cpu = cpu();

        void report(long records, String extra) throws Exception {
            System.out.printf(
                Locale.ROOT,
                "{\"records\":%d,\"seconds\":%.4f,\"cpu_seconds\":%.3f,\"peak_rss_kib\":%d%s}%n",
                records, (System.nanoTime() - start) / 1e9, cpu() - cpu, peak(), extra);
        }

        private static double cpu() {
            try {
                var stat = Files.readString(Path.of("/proc/self/stat"));
                var fields = stat.substring(stat.lastIndexOf(')') + 2).split(" ");
                return (Long.parseLong(fields[11]) + Long.parseLong(fields[12])) / 100.0;
            } catch (java.io.IOException problem) {
                throw new java.io.UncheckedIOException(problem);
            }
        }

        private static long peak() throws Exception {
            for (String line : Files.readAllLines(Path.of("/proc/self/status"))) {
                if (line.startsWith("VmHWM:")) {
                    return Long.parseLong(line.replaceAll("[^0-9]", ""));
                }
            }
            return 0;
        }
    }
}
