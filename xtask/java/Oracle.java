// What does a cluster hold? Asked with Kafka's own client, so that no code of ours vouches for itself.
//
// java -cp JARS Oracle.java BOOTSTRAP create TOPIC PARTITIONS
// java -cp JARS Oracle.java BOOTSTRAP sessions GROUP MS        of the group's members under the consumer protocol
// java -cp JARS Oracle.java BOOTSTRAP read TOPIC               one line per record: PARTITION OFFSET KEY
// java -cp JARS Oracle.java BOOTSTRAP committed GROUP TOPIC    one line per partition: PARTITION COMMITTED END

import java.io.PrintStream;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.StringDeserializer;

public class Oracle {
    public static void main(String[] args) throws Exception {
        var out = new PrintStream(System.out, false);
        switch (args[1]) {
            case "create" -> create(args[0], args[2], Integer.parseInt(args[3]));
            case "sessions" -> sessions(args[0], args[2], Integer.parseInt(args[3]));
            case "read" -> read(args[0], args[2], out);
            case "committed" -> committed(args[0], args[2], args[3], out);
            default -> throw new IllegalArgumentException(args[1]);
        }
        out.flush();
    }

    private static void create(String bootstrap, String topic, int partitions) throws Exception {
        try (var admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            admin.createTopics(List.of(new NewTopic(topic, Optional.of(partitions), Optional.empty()))).all().get();
        }
    }

    private static void sessions(String bootstrap, String group, int milliseconds) throws Exception {
        var entries = Map.of(
                "consumer.session.timeout.ms", milliseconds,
                "consumer.heartbeat.interval.ms", milliseconds / 3);
        var changes = entries.entrySet().stream()
                .map(entry -> new ConfigEntry(entry.getKey(), entry.getValue().toString()))
                .map(entry -> new AlterConfigOp(entry, AlterConfigOp.OpType.SET))
                .collect(Collectors.toList());
        // By name: the client of Kafka 3.9, for which this is compiled too, does not know it.
        var of = new ConfigResource(ConfigResource.Type.valueOf("GROUP"), group);
        try (var admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            admin.incrementalAlterConfigs(Map.of(of, changes)).all().get();
        }
    }

    private static KafkaConsumer<String, String> consumer(String bootstrap) {
        return new KafkaConsumer<>(Map.of(
                "bootstrap.servers", bootstrap,
                "key.deserializer", StringDeserializer.class,
                "value.deserializer", StringDeserializer.class,
                "enable.auto.commit", false));
    }

    private static List<TopicPartition> partitions(KafkaConsumer<String, String> consumer, String topic) {
        return consumer.partitionsFor(topic).stream()
                .map(info -> new TopicPartition(info.topic(), info.partition()))
                .collect(Collectors.toList());
    }

    private static void read(String bootstrap, String topic, PrintStream out) {
        try (var consumer = consumer(bootstrap)) {
            var partitions = partitions(consumer, topic);
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            var ends = consumer.endOffsets(partitions);
            while (partitions.stream().anyMatch(partition -> consumer.position(partition) < ends.get(partition))) {
                for (var record : consumer.poll(Duration.ofMillis(500))) {
                    out.println(record.partition() + " " + record.offset() + " " + record.key());
                }
            }
        }
    }

    private static void committed(String bootstrap, String group, String topic, PrintStream out) throws Exception {
        try (var consumer = consumer(bootstrap); var admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            var ends = consumer.endOffsets(partitions(consumer, topic));
            var committed = admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get();
            ends.forEach((partition, end) -> {
                var offset = committed.get(partition);
                out.println(partition.partition() + " " + (offset == null ? -1 : offset.offset()) + " " + end);
            });
        }
    }
}
