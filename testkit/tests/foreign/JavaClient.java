// Does the Java client trust our broker? Produce, group consume and admin through kafka-clients 3.9 or 4.x.
//
// usage: java -cp KAFKA_JARS JavaClient.java [--bootstrap] HOST:PORT[,...]
// The last line is `N passed, N failed`; the exit code is not 0 when something failed.

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.*;
import java.util.concurrent.*;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.TopicExistsException;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.*;

public class JavaClient {
    static String bootstrap;
    static final String RUN = Long.toString(System.nanoTime(), 36);

    interface Case { void run() throws Exception; }

    public static void main(String[] args) {
        bootstrap = args[args.length - 1];
        Map<String, Case> cases = new LinkedHashMap<>();
        for (String codec : List.of("none", "gzip", "snappy", "lz4", "zstd"))
            cases.put("compression " + codec, () -> roundTrip(codec));
        for (String acks : List.of("0", "1", "all")) cases.put("acks " + acks, () -> acks(acks));
        cases.put("commits with metadata survive a restart", JavaClient::commits);
        cases.put("transactions", JavaClient::transactions);
        for (Class<?> assignor : List.of(RangeAssignor.class, RoundRobinAssignor.class, StickyAssignor.class,
                CooperativeStickyAssignor.class))
            cases.put("a group hands over with " + assignor.getSimpleName(), () -> handOver(assignor.getName()));
        cases.put("a static member comes back without a rebalance", JavaClient::staticMember);
        cases.put("offsets by time, beginning and end", JavaClient::offsets);
        cases.put("admin", JavaClient::admin);
        int failed = 0;
        for (Map.Entry<String, Case> one : cases.entrySet()) {
            long start = System.nanoTime();
            try {
                one.getValue().run();
                System.out.printf("ok %s %.1f s%n", one.getKey(), (System.nanoTime() - start) / 1e9);
            } catch (Throwable problem) {
                failed++;
                problem.printStackTrace(System.out);
                System.out.println("FAILED " + one.getKey());
            }
        }
        System.out.println((cases.size() - failed) + " passed, " + failed + " failed");
        System.exit(failed == 0 ? 0 : 1);
    }

    static void check(boolean holds, Object what) {
        if (!holds) throw new AssertionError(String.valueOf(what));
    }

    static String name(String text) { return "java-" + text.replace(' ', '-') + "-" + RUN; }

    static Admin admin0() { return Admin.create(Map.of(AdminClientConfig.BOOTSTRAP_SERVERS_CONFIG, bootstrap)); }

    static void create(String topic, int partitions) throws Exception {
        try (Admin admin = admin0()) {
            admin.createTopics(List.of(new NewTopic(topic, partitions, (short) -1))).all().get(20, TimeUnit.SECONDS);
        }
    }

    static Map<String, List<String>> produce(String topic, int count, Map<String, Object> more) throws Exception {
        Map<String, Object> config = new HashMap<>(Map.of("bootstrap.servers", bootstrap, "linger.ms", 2,
            "delivery.timeout.ms", 30000, "request.timeout.ms", 10000));
        config.putAll(more);
        Map<String, List<String>> sent = new TreeMap<>();
        try (Producer<String, String> producer =
                new KafkaProducer<>(config, new StringSerializer(), new StringSerializer())) {
            List<Future<RecordMetadata>> acknowledged = new ArrayList<>();
            for (int number = 0; number < count; number++) {
                String key = "k" + number % 40, value = "v" + number + "-" + "x".repeat(number % 80);
                ProducerRecord<String, String> record = new ProducerRecord<>(topic, key, value);
                record.headers().add(new RecordHeader("n", "1".getBytes(StandardCharsets.UTF_8)));
                acknowledged.add(producer.send(record));
                sent.computeIfAbsent(key, none -> new ArrayList<>()).add(value);
            }
            for (Future<RecordMetadata> one : acknowledged) one.get(60, TimeUnit.SECONDS);
        }
        return sent;
    }

    static KafkaConsumer<String, String> consumer(String group, Map<String, Object> more) {
        Map<String, Object> config = new HashMap<>(Map.of("bootstrap.servers", bootstrap, "group.id", group,
            "auto.offset.reset", "earliest", "enable.auto.commit", false));
        config.putAll(more);
        return new KafkaConsumer<>(config, new StringDeserializer(), new StringDeserializer());
    }

    static Map<String, List<String>> read(Consumer<String, String> consumer, int count) {
        Map<String, List<String>> seen = new TreeMap<>();
        long deadline = System.nanoTime() + 60_000_000_000L;
        for (int total = 0; total < count; ) {
            check(System.nanoTime() < deadline, total + " of " + count + " records");
            for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(200))) {
                check(record.headers().lastHeader("n") != null, "a header is missing");
                seen.computeIfAbsent(record.key(), none -> new ArrayList<>()).add(record.value());
                total++;
            }
        }
        return seen;
    }

    static void roundTrip(String codec) throws Exception {
        String topic = name("codec-" + codec);
        create(topic, 3);
        Map<String, List<String>> sent = produce(topic, 2000, Map.of("compression.type", codec));
        try (KafkaConsumer<String, String> consumer = consumer(topic, Map.of("isolation.level", "read_committed"))) {
            consumer.subscribe(List.of(topic));
            check(read(consumer, 2000).equals(sent), "what was read differs from what was sent");
        }
    }

    static void acks(String acks) throws Exception {
        String topic = name("acks-" + acks);
        create(topic, 2);
        Map<String, List<String>> sent = produce(topic, 500, Map.of("acks", acks, "enable.idempotence", acks.equals("all")));
        try (KafkaConsumer<String, String> consumer = consumer(topic, Map.of())) {
            consumer.assign(List.of(new TopicPartition(topic, 0), new TopicPartition(topic, 1)));
            check(read(consumer, 500).equals(sent), "what was read differs from what was sent");
        }
    }

    /** Committed transactions are read whole and in order, aborted ones not at all, and an older producer is fenced. */
    static void transactions() throws Exception {
        String topic = name("transactions"), id = name("tx");
        create(topic, 2);
        Map<String, List<String>> committed = new TreeMap<>();
        Producer<String, String> old = transactional(id);
        try (old; Producer<String, String> producer = transactional(id)) {
            try {
                old.beginTransaction();
                old.send(new ProducerRecord<>(topic, "k", "fenced")).get(20, TimeUnit.SECONDS);
                old.commitTransaction();
                throw new AssertionError("the older producer was not fenced");
            } catch (ExecutionException | KafkaException fenced) {
                // As it should be.
            }
            for (int round = 0; round < 6; round++) {
                producer.beginTransaction();
                for (int number = 0; number < 50; number++) {
                    String key = "k" + number % 7, value = round + "-" + number;
                    ProducerRecord<String, String> record = new ProducerRecord<>(topic, key, value);
                    record.headers().add(new RecordHeader("n", "1".getBytes(StandardCharsets.UTF_8)));
                    producer.send(record);
                    if (round % 2 == 0) committed.computeIfAbsent(key, none -> new ArrayList<>()).add(value);
                }
                producer.flush();
                if (round % 2 == 0) producer.commitTransaction(); else producer.abortTransaction();
            }
        }
        try (KafkaConsumer<String, String> consumer = consumer(topic, Map.of("isolation.level", "read_committed"))) {
            consumer.assign(List.of(new TopicPartition(topic, 0), new TopicPartition(topic, 1)));
            check(read(consumer, 150).equals(committed), "what was read differs from what was committed");
            check(consumer.poll(Duration.ofMillis(500)).isEmpty(), "an aborted record was read");
        }
        try (KafkaConsumer<String, String> consumer = consumer(topic, Map.of("isolation.level", "read_uncommitted"))) {
            consumer.assign(List.of(new TopicPartition(topic, 0), new TopicPartition(topic, 1)));
            read(consumer, 300);
        }
    }

    static Producer<String, String> transactional(String id) {
        Producer<String, String> producer = new KafkaProducer<>(Map.of("bootstrap.servers", bootstrap,
            "transactional.id", id, "max.block.ms", 20000), new StringSerializer(), new StringSerializer());
        producer.initTransactions();
        return producer;
    }

    static void commits() throws Exception {
        String topic = name("commits");
        create(topic, 2);
        produce(topic, 300, Map.of());
        Map<TopicPartition, OffsetAndMetadata> positions = new HashMap<>();
        try (KafkaConsumer<String, String> consumer = consumer(topic, Map.of())) {
            consumer.subscribe(List.of(topic));
            read(consumer, 300);
            for (TopicPartition one : consumer.assignment())
                positions.put(one, new OffsetAndMetadata(consumer.position(one), Optional.of(0), "text " + one.partition()));
            consumer.commitSync(positions);
        }
        produce(topic, 100, Map.of());
        try (KafkaConsumer<String, String> consumer = consumer(topic, Map.of())) {
            check(consumer.committed(positions.keySet()).equals(positions), consumer.committed(positions.keySet()));
            consumer.subscribe(List.of(topic));
            int total = read(consumer, 100).values().stream().mapToInt(List::size).sum();
            check(total == 100, total);
        }
    }

    static void handOver(String assignor) throws Exception {
        String topic = name("group-" + assignor.substring(assignor.lastIndexOf('.') + 1));
        create(topic, 6);
        Set<String> seen = ConcurrentHashMap.newKeySet();
        AtomicBoolean stop = new AtomicBoolean();
        Map<String, Object> config = Map.of("partition.assignment.strategy", assignor, "heartbeat.interval.ms", 200,
            "max.poll.records", 50, "auto.commit.interval.ms", 50, "enable.auto.commit", true);
        ExecutorService members = Executors.newFixedThreadPool(3);
        List<Future<?>> running = new ArrayList<>();
        for (int index = 0; index < 3; index++) {
            int leaveAfter = index == 2 ? 300 : Integer.MAX_VALUE;
            running.add(members.submit(() -> {
                try (KafkaConsumer<String, String> consumer = consumer(topic, config)) {
                    consumer.subscribe(List.of(topic));
                    int mine = 0;
                    while (!stop.get() && mine < leaveAfter)
                        for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(100))) {
                            seen.add(record.key() + record.value());
                            mine++;
                        }
                }
            }));
        }
        Set<String> sent = new HashSet<>();
        produce(topic, 4000, Map.of()).forEach((key, values) -> values.forEach(value -> sent.add(key + value)));
        long deadline = System.nanoTime() + 60_000_000_000L;
        while (!seen.containsAll(sent)) {
            check(System.nanoTime() < deadline, seen.size() + " of " + sent.size());
            Thread.sleep(20);
        }
        stop.set(true);
        for (Future<?> one : running) one.get(30, TimeUnit.SECONDS);
        members.shutdown();
    }

    static void staticMember() throws Exception {
        String topic = name("static");
        create(topic, 2);
        produce(topic, 20, Map.of());
        Map<String, Object> config = Map.of("group.instance.id", "one", "session.timeout.ms", 30000);
        int generation;
        try (KafkaConsumer<String, String> consumer = consumer(topic, config)) {
            consumer.subscribe(List.of(topic));
            read(consumer, 20);
            consumer.commitSync();
            generation = consumer.groupMetadata().generationId();
        }
        produce(topic, 20, Map.of());
        try (KafkaConsumer<String, String> consumer = consumer(topic, config)) {
            consumer.subscribe(List.of(topic));
            read(consumer, 20);
            check(consumer.groupMetadata().generationId() == generation, "another generation");
        }
    }

    static void offsets() throws Exception {
        String topic = name("offsets");
        create(topic, 1);
        long before = System.currentTimeMillis();
        produce(topic, 50, Map.of());
        TopicPartition partition = new TopicPartition(topic, 0);
        try (KafkaConsumer<String, String> consumer = consumer(topic, Map.of())) {
            check(consumer.endOffsets(List.of(partition)).get(partition) == 50, "end");
            check(consumer.beginningOffsets(List.of(partition)).get(partition) == 0, "beginning");
            OffsetAndTimestamp found = consumer.offsetsForTimes(Map.of(partition, before)).get(partition);
            check(found.offset() == 0 && found.timestamp() >= before, found);
            check(consumer.offsetsForTimes(Map.of(partition, before + 3_600_000)).get(partition) == null, "the future");
            consumer.assign(List.of(partition));
            consumer.seek(partition, 45);
            check(read(consumer, 5).values().stream().mapToInt(List::size).sum() == 5, "after a seek");
        }
    }

    static void admin() throws Exception {
        String topic = name("admin"), group = name("admin-group");
        try (Admin admin = admin0()) {
            NewTopic wanted = new NewTopic(topic, Optional.of(2), Optional.empty()).configs(Map.of("retention.ms", "777"));
            CreateTopicsResult created = admin.createTopics(List.of(wanted));
            created.all().get(20, TimeUnit.SECONDS);
            check(created.numPartitions(topic).get() == 2, "partitions of the answer");
            try {
                admin.createTopics(List.of(wanted)).all().get(20, TimeUnit.SECONDS);
                check(false, "created twice");
            } catch (ExecutionException expected) {
                check(expected.getCause() instanceof TopicExistsException, expected.getCause());
            }
            check(admin.describeCluster().nodes().get(20, TimeUnit.SECONDS).size() > 0, "nodes");
            check(admin.describeCluster().controller().get(20, TimeUnit.SECONDS) != null, "controller");
            admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(4))).all().get(20, TimeUnit.SECONDS);
            TopicDescription described = admin.describeTopics(List.of(topic)).allTopicNames().get(20, TimeUnit.SECONDS).get(topic);
            check(described.partitions().size() == 4 && described.topicId() != null, described);
            ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
            AlterConfigOp change = new AlterConfigOp(new ConfigEntry("retention.ms", "888"), AlterConfigOp.OpType.SET);
            check(admin.describeConfigs(List.of(resource)).all().get(20, TimeUnit.SECONDS).get(resource)
                .get("retention.ms").value().equals("777"), "the config as created");
            admin.incrementalAlterConfigs(Map.of(resource, List.of(change))).all().get(20, TimeUnit.SECONDS);
            check(admin.describeConfigs(List.of(resource)).all().get(20, TimeUnit.SECONDS).get(resource)
                .get("retention.ms").value().equals("888"), "the config as changed");
            produce(topic, 100, Map.of());
            TopicPartition partition = new TopicPartition(topic, 0);
            try (KafkaConsumer<String, String> consumer = consumer(group, Map.of())) {
                consumer.subscribe(List.of(topic));
                read(consumer, 100);
                consumer.commitSync();
                ConsumerGroupDescription one = admin.describeConsumerGroups(List.of(group)).all()
                    .get(20, TimeUnit.SECONDS).get(group);
                check(one.members().size() == 1, one);
                check(one.members().iterator().next().assignment().topicPartitions().size() == 4, one);
                check(admin.listConsumerGroups().all().get(20, TimeUnit.SECONDS).stream()
                    .anyMatch(listed -> listed.groupId().equals(group)), "the group is not listed");
            }
            Map<TopicPartition, OffsetAndMetadata> committed = admin.listConsumerGroupOffsets(group)
                .partitionsToOffsetAndMetadata().get(20, TimeUnit.SECONDS);
            check(committed.values().stream().mapToLong(OffsetAndMetadata::offset).sum() == 100, committed);
            admin.alterConsumerGroupOffsets(group, Map.of(partition, new OffsetAndMetadata(1))).all().get(20, TimeUnit.SECONDS);
            check(admin.deleteRecords(Map.of(partition, RecordsToDelete.beforeOffset(1))).lowWatermarks().get(partition)
                .get(20, TimeUnit.SECONDS).lowWatermark() == 1, "low watermark");
            check(admin.listOffsets(Map.of(partition, OffsetSpec.maxTimestamp())).partitionResult(partition)
                .get(20, TimeUnit.SECONDS).offset() >= 0, "the largest timestamp");
            admin.deleteConsumerGroupOffsets(group, Set.of(partition)).all().get(20, TimeUnit.SECONDS);
            admin.deleteConsumerGroups(List.of(group)).all().get(20, TimeUnit.SECONDS);
            admin.deleteTopics(List.of(topic)).all().get(20, TimeUnit.SECONDS);
            check(!admin.listTopics().names().get(20, TimeUnit.SECONDS).contains(topic), "still listed");
        }
    }
}
