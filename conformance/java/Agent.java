// The Java client as an agent of the conformance suite: java -cp KAFKA_JARS Agent HOST:PORT[,...]
// One JSON line in, one JSON line out; see ../README.md for the operations.

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.*;
import java.util.concurrent.*;
import java.util.regex.Pattern;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.ApiException;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.serialization.*;

public class Agent {
    static final ObjectMapper JSON = new ObjectMapper();
    static final Map<String, Member> members = new HashMap<>();
    static final Map<String, KafkaProducer<byte[], byte[]>> open = new HashMap<>();
    static String bootstrap;
    static Admin admin;

    record Member(KafkaConsumer<byte[], byte[]> consumer) {}

    static class Lacks extends RuntimeException {
        Lacks(String what) { super(what); }
    }

    public static void main(String[] args) throws Exception {
        bootstrap = args[0];
        admin = Admin.create(Map.of("bootstrap.servers", bootstrap, "metadata.max.age.ms", 1000));
        var in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        var out = new java.io.PrintStream(System.out, true, StandardCharsets.UTF_8);
        for (String line; (line = in.readLine()) != null; ) {
            ObjectNode answer = JSON.createObjectNode();
            try {
                answer.set("ok", JSON.valueToTree(run(JSON.readTree(line))));
            } catch (Lacks what) {
                answer.put("lacks", what.getMessage());
            } catch (Exception problem) {
                Throwable cause = problem instanceof ExecutionException ? problem.getCause() : problem;
                ObjectNode error = answer.putObject("error");
                Errors known = Errors.forException(cause);
                error.put("code", cause instanceof ApiException && known != Errors.UNKNOWN_SERVER_ERROR
                    ? Integer.valueOf(known.code()) : null);
                error.put("text", cause.toString());
            }
            out.println(answer);
        }
        System.exit(0);
    }

    static <T> T wait(KafkaFuture<T> future) throws Exception { return future.get(20, TimeUnit.SECONDS); }

    static String text(JsonNode ask, String field) {
        JsonNode value = ask.get(field);
        return value == null || value.isNull() ? null : value.asText();
    }

    static byte[] bytes(String text) { return text == null ? null : text.getBytes(StandardCharsets.UTF_8); }

    static String string(byte[] bytes) { return bytes == null ? null : new String(bytes, StandardCharsets.UTF_8); }

    static int partitions(String topic) throws Exception {
        return wait(admin.describeTopics(List.of(topic)).allTopicNames()).get(topic).partitions().size();
    }

    static Object run(JsonNode ask) throws Exception {
        String topic = text(ask, "topic"), group = text(ask, "group");
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic == null ? "" : topic);
        switch (text(ask, "op")) {
            case "create": {
                Optional<Short> replicas = Optional.ofNullable(ask.get("replication")).map(one -> (short) one.asInt());
                Map<String, String> configs = new HashMap<>();
                if (ask.has("configs")) ask.get("configs").properties().forEach(one -> configs.put(one.getKey(), one.getValue().asText()));
                wait(admin.createTopics(List.of(new NewTopic(topic, Optional.of(ask.get("partitions").asInt()), replicas).configs(configs))).all());
                return null;
            }
            case "delete": wait(admin.deleteTopics(List.of(topic)).all()); return null;
            case "grow":
                wait(admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(ask.get("total").asInt()))).all());
                return null;
            case "configs": {
                Map<String, String> found = new HashMap<>();
                wait(admin.describeConfigs(List.of(resource)).all()).get(resource).entries().forEach(one -> found.put(one.name(), one.value()));
                return found;
            }
            case "alter": {
                var change = new AlterConfigOp(new ConfigEntry(text(ask, "name"), text(ask, "value")), AlterConfigOp.OpType.SET);
                wait(admin.incrementalAlterConfigs(Map.of(resource, List.of(change))).all());
                return null;
            }
            case "trim": {
                TopicPartition place = new TopicPartition(topic, ask.get("partition").asInt());
                var to = Map.of(place, RecordsToDelete.beforeOffset(ask.get("offset").asLong()));
                return wait(admin.deleteRecords(to).lowWatermarks().get(place)).lowWatermark();
            }
            case "topics": {
                Set<String> names = wait(admin.listTopics().names());
                Map<String, Integer> found = new HashMap<>();
                wait(admin.describeTopics(names).allTopicNames()).forEach((name, one) -> found.put(name, one.partitions().size()));
                return found;
            }
            case "cluster": {
                DescribeClusterResult found = admin.describeCluster();
                return Map.of("brokers", wait(found.nodes()).stream().map(node -> node.id()).toList(), "controller", wait(found.controller()).id());
            }
            case "groups":
                return wait(admin.listConsumerGroups().all()).stream().map(ConsumerGroupListing::groupId).toList();
            case "group": {
                ConsumerGroupDescription found = wait(admin.describeConsumerGroups(List.of(group)).all()).get(group);
                int assigned = found.members().stream().mapToInt(one -> one.assignment().topicPartitions().size()).sum();
                return Map.of("state", found.groupState().toString(), "members", found.members().size(), "partitions", assigned);
            }
            case "drop_group": wait(admin.deleteConsumerGroups(List.of(group)).all()); return null;
            case "committed": {
                Map<String, Object> found = new HashMap<>();
                wait(admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata()).forEach((place, at) -> {
                    if (at != null && place.topic().equals(topic))
                        found.put("" + place.partition(), Map.of("offset", at.offset(), "metadata", at.metadata()));
                });
                return found;
            }
            case "set_offsets": {
                Map<TopicPartition, OffsetAndMetadata> to = new HashMap<>();
                ask.get("offsets").properties().forEach(one ->
                    to.put(new TopicPartition(topic, Integer.parseInt(one.getKey())), new OffsetAndMetadata(one.getValue().asLong())));
                wait(admin.alterConsumerGroupOffsets(group, to).all());
                return null;
            }
            case "offsets": {
                String at = text(ask, "at");
                OffsetSpec spec = at.equals("earliest") ? OffsetSpec.earliest() : at.equals("latest") ? OffsetSpec.latest()
                    : OffsetSpec.forTimestamp(ask.get("at").asLong());
                Map<TopicPartition, OffsetSpec> asked = new HashMap<>();
                for (int one = partitions(topic); one-- > 0; ) asked.put(new TopicPartition(topic, one), spec);
                Map<String, Long> found = new HashMap<>();
                wait(admin.listOffsets(asked).all()).forEach((place, one) -> found.put("" + place.partition(), one.offset()));
                return found;
            }
            case "produce": return produce(ask, topic);
            case "read": return read(ask, topic);
            case "join": join(ask); return null;
            case "poll": return poll(ask);
            case "commit": {
                Map<TopicPartition, OffsetAndMetadata> to = new HashMap<>();
                for (JsonNode one : ask.get("offsets"))
                    to.put(new TopicPartition(text(one, "topic"), one.get("partition").asInt()),
                        new OffsetAndMetadata(one.get("offset").asLong(), one.path("metadata").asText("")));
                members.get(text(ask, "member")).consumer().commitSync(to, Duration.ofSeconds(15));
                return null;
            }
            case "leave": members.remove(text(ask, "member")).consumer().close(Duration.ofSeconds(15)); return null;
            default: throw new Lacks("no operation " + text(ask, "op"));
        }
    }

    static Object produce(JsonNode ask, String topic) throws Exception {
        int ms = ask.path("ms").asInt(15000);
        Map<String, Object> config = new HashMap<>(Map.of("bootstrap.servers", bootstrap, "linger.ms", 1, "max.request.size", 3_000_000,
            "max.block.ms", ms, "request.timeout.ms", Math.min(ms, 10000) - 1, "delivery.timeout.ms", ms, "metadata.max.age.ms", 1000,
            "compression.type", ask.path("compression").asText("none"),
            "enable.idempotence", ask.path("idempotent").asBoolean(false)));
        if (ask.has("acks")) config.put("acks", ask.get("acks").asText());
        String transaction = text(ask, "transaction");
        if (transaction != null) config.putAll(Map.of("transactional.id", transaction, "enable.idempotence", true));
        KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(config, new ByteArraySerializer(), new ByteArraySerializer());
        boolean keep = transaction != null && !ask.has("end");
        try {
            if (transaction != null) {
                producer.initTransactions();
                producer.beginTransaction();
            }
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (JsonNode one : ask.get("records")) {
                Integer partition = one.hasNonNull("partition") ? one.get("partition").asInt() : null;
                Long timestamp = one.hasNonNull("timestamp") ? one.get("timestamp").asLong() : null;
                var record = new ProducerRecord<>(topic, partition, timestamp, bytes(text(one, "key")), bytes(text(one, "value")));
                for (JsonNode header : one.path("headers"))
                    record.headers().add(header.get(0).asText(), header.get(1).isNull() ? null : bytes(header.get(1).asText()));
                sent.add(producer.send(record));
            }
            List<Object> written = new ArrayList<>();
            for (Future<RecordMetadata> one : sent) {
                RecordMetadata at = one.get(20, TimeUnit.SECONDS);
                written.add(Map.of("partition", at.partition(), "offset", at.offset()));
            }
            if (ask.path("end").asText().equals("commit")) producer.commitTransaction();
            if (ask.path("end").asText().equals("abort")) producer.abortTransaction();
            if (keep) open.put(transaction, producer);
            return written;
        } finally {
            if (!keep) producer.close(Duration.ofSeconds(5));
        }
    }

    static KafkaConsumer<byte[], byte[]> consumer(Map<String, Object> more) {
        Map<String, Object> config = new HashMap<>(Map.of("bootstrap.servers", bootstrap, "enable.auto.commit", false,
            "metadata.max.age.ms", 1000, "fetch.max.wait.ms", 100, "auto.offset.reset", "earliest"));
        config.putAll(more);
        return new KafkaConsumer<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    static List<Object> rows(Iterable<ConsumerRecord<byte[], byte[]>> records) {
        List<Object> rows = new ArrayList<>();
        for (ConsumerRecord<byte[], byte[]> record : records) {
            Map<String, Object> row = new HashMap<>();
            List<Object> headers = new ArrayList<>();
            for (Header one : record.headers()) headers.add(Arrays.asList(one.key(), string(one.value())));
            row.putAll(Map.of("topic", record.topic(), "partition", record.partition(), "offset", record.offset(),
                "timestamp", record.timestamp(), "headers", headers));
            row.put("key", string(record.key()));
            row.put("value", string(record.value()));
            rows.add(row);
        }
        return rows;
    }

    static Object read(JsonNode ask, String topic) {
        Map<String, Object> more = new HashMap<>(Map.of("isolation.level", ask.path("committed").asBoolean() ? "read_committed" : "read_uncommitted"));
        if (ask.has("max_bytes")) more.putAll(Map.of("fetch.max.bytes", ask.get("max_bytes").asInt(), "max.partition.fetch.bytes", ask.get("max_bytes").asInt()));
        TopicPartition place = new TopicPartition(topic, ask.get("partition").asInt());
        List<Object> found = new ArrayList<>();
        long deadline = System.nanoTime() + ask.path("ms").asLong(15000) * 1_000_000;
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(more)) {
            consumer.assign(List.of(place));
            String at = text(ask, "offset");
            if (at.equals("earliest")) consumer.seekToBeginning(List.of(place));
            else if (at.equals("latest")) consumer.seekToEnd(List.of(place));
            else consumer.seek(place, ask.get("offset").asLong());
            while (found.size() < ask.get("count").asInt() && System.nanoTime() < deadline)
                found.addAll(rows(consumer.poll(Duration.ofMillis(100))));
        }
        return found;
    }

    static void join(JsonNode ask) {
        Map<String, Object> more = new HashMap<>(Map.of("group.id", text(ask, "group"), "heartbeat.interval.ms", 300,
            "auto.offset.reset", ask.path("reset").asText("earliest"), "session.timeout.ms", ask.path("session_ms").asInt(30000)));
        if (ask.has("instance")) more.put("group.instance.id", text(ask, "instance"));
        if (ask.has("strategy")) more.put("partition.assignment.strategy", switch (text(ask, "strategy")) {
            case "range" -> RangeAssignor.class.getName();
            case "roundrobin" -> RoundRobinAssignor.class.getName();
            default -> CooperativeStickyAssignor.class.getName();
        });
        KafkaConsumer<byte[], byte[]> consumer = consumer(more);
        if (ask.has("pattern")) consumer.subscribe(Pattern.compile(text(ask, "pattern")));
        else {
            List<String> topics = new ArrayList<>();
            ask.get("topics").forEach(one -> topics.add(one.asText()));
            consumer.subscribe(topics);
        }
        members.put(text(ask, "member"), new Member(consumer));
    }

    static Object poll(JsonNode ask) {
        KafkaConsumer<byte[], byte[]> consumer = members.get(text(ask, "member")).consumer();
        List<Object> records = rows(consumer.poll(Duration.ofMillis(ask.get("ms").asLong())));
        if (ask.path("commit").asBoolean() && !records.isEmpty()) consumer.commitSync(Duration.ofSeconds(15));
        List<Object> assigned = consumer.assignment().stream().map(one -> (Object) List.of(one.topic(), one.partition())).toList();
        return Map.of("records", records, "assigned", assigned);
    }
}
