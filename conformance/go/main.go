// franz-go as an agent of the conformance suite: agent HOST:PORT[,...]
// One JSON line in, one JSON line out; see ../README.md for the operations.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

type record struct {
	Topic     string       `json:"topic"`
	Partition *int32       `json:"partition"`
	Offset    int64        `json:"offset"`
	Timestamp *int64       `json:"timestamp"`
	Key       *string      `json:"key"`
	Value     *string      `json:"value"`
	Headers   [][2]*string `json:"headers"`
}

type ask struct {
	Op, Topic, Group, Member, Name, Value   string
	Compression, Partitioner, Transaction   string
	End, Strategy, Instance, Pattern, Reset string
	Partitions, Partition, Total            int32
	Replication                             int16
	Configs                                 map[string]*string
	Topics                                  []string
	Records                                 []record
	Acks                                    *int
	Idempotent, Committed, Commit           bool
	Offset, At                              json.RawMessage
	Offsets                                 json.RawMessage
	Count                                   int
	Ms                                      int
	MaxBytes                                int32 `json:"max_bytes"`
	SessionMs                               int   `json:"session_ms"`
}

var (
	seeds   []string
	admin   *kadm.Client
	members = map[string]*member{}
	open    []*kgo.Client
)

func main() {
	seeds = strings.Split(os.Args[1], ",")
	client, err := kgo.NewClient(common()...)
	if err != nil {
		panic(err)
	}
	admin = kadm.NewClient(client)
	in := bufio.NewReaderSize(os.Stdin, 1<<20)
	out := json.NewEncoder(os.Stdout)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return
		}
		var a ask
		if err := json.Unmarshal(line, &a); err != nil {
			panic(err)
		}
		ok, err := run(a)
		var broker *kerr.Error
		switch {
		case err == nil:
			out.Encode(map[string]any{"ok": ok})
		case errors.As(err, &broker):
			out.Encode(map[string]any{"error": map[string]any{"code": broker.Code, "text": err.Error()}})
		default:
			out.Encode(map[string]any{"error": map[string]any{"code": nil, "text": err.Error()}})
		}
	}
}

func common(more ...kgo.Opt) []kgo.Opt {
	return append([]kgo.Opt{kgo.SeedBrokers(seeds...), kgo.MetadataMaxAge(time.Second),
		kgo.MetadataMinAge(100 * time.Millisecond)}, more...)
}

func run(a ask) (any, error) {
	patience := 20 * time.Second
	if a.Ms > 0 {
		patience = time.Duration(a.Ms) * time.Millisecond
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	switch a.Op {
	case "create":
		if a.Replication == 0 {
			a.Replication = -1
		}
		_, err := admin.CreateTopic(ctx, a.Partitions, a.Replication, a.Configs, a.Topic)
		return nil, err
	case "delete":
		_, err := admin.DeleteTopic(ctx, a.Topic)
		return nil, err
	case "grow":
		found, err := admin.UpdatePartitions(ctx, int(a.Total), a.Topic)
		if err == nil {
			err = found.Error()
		}
		return nil, err
	case "configs":
		found, err := admin.DescribeTopicConfigs(ctx, a.Topic)
		if err != nil {
			return nil, err
		}
		one, err := found.On(a.Topic, nil)
		if err == nil {
			err = one.Err
		}
		configs := map[string]*string{}
		for _, config := range one.Configs {
			configs[config.Key] = config.Value
		}
		return configs, err
	case "alter":
		found, err := admin.AlterTopicConfigs(ctx, []kadm.AlterConfig{{Op: kadm.SetConfig, Name: a.Name, Value: &a.Value}}, a.Topic)
		if err == nil {
			err = found[0].Err
		}
		return nil, err
	case "trim":
		to := kadm.Offsets{}
		to.AddOffset(a.Topic, a.Partition, whole(a.Offset), -1)
		found, err := admin.DeleteRecords(ctx, to)
		if err == nil {
			err = found.Error()
		}
		one, _ := found.Lookup(a.Topic, a.Partition)
		return one.LowWatermark, err
	case "topics":
		found, err := admin.ListTopics(ctx)
		topics := map[string]int{}
		for name, one := range found {
			topics[name] = len(one.Partitions)
		}
		return topics, err
	case "cluster":
		found, err := admin.BrokerMetadata(ctx)
		return map[string]any{"brokers": found.Brokers.NodeIDs(), "controller": found.Controller}, err
	case "groups":
		found, err := admin.ListGroups(ctx)
		return found.Groups(), err
	case "group":
		found, err := admin.DescribeGroups(ctx, a.Group)
		if err != nil {
			return nil, err
		}
		one := found[a.Group]
		assigned := 0
		for _, partitions := range found.AssignedPartitions() {
			assigned += len(partitions)
		}
		return map[string]any{"state": one.State, "members": len(one.Members), "partitions": assigned}, one.Err
	case "drop_group":
		_, err := admin.DeleteGroup(ctx, a.Group)
		return nil, err
	case "committed":
		found, err := admin.FetchOffsetsForTopics(ctx, a.Group, a.Topic)
		committed := map[string]any{}
		for partition, at := range found[a.Topic] {
			if at.At >= 0 {
				committed[strconv.Itoa(int(partition))] = map[string]any{"offset": at.At, "metadata": at.Metadata}
			}
		}
		return committed, err
	case "set_offsets":
		var offsets map[int32]int64
		json.Unmarshal(a.Offsets, &offsets)
		to := kadm.Offsets{}
		for partition, offset := range offsets {
			to.AddOffset(a.Topic, partition, offset, -1)
		}
		return nil, admin.CommitAllOffsets(ctx, a.Group, to)
	case "offsets":
		var found kadm.ListedOffsets
		var err error
		switch string(a.At) {
		case `"earliest"`:
			found, err = admin.ListStartOffsets(ctx, a.Topic)
		case `"latest"`:
			found, err = admin.ListEndOffsets(ctx, a.Topic)
		default:
			found, err = admin.ListOffsetsAfterMilli(ctx, whole(a.At), a.Topic)
		}
		if err == nil {
			err = found.Error()
		}
		offsets := map[string]int64{}
		for partition, one := range found[a.Topic] {
			offsets[strconv.Itoa(int(partition))] = one.Offset
		}
		return offsets, err
	case "produce":
		return produce(ctx, a)
	case "read":
		return read(ctx, a)
	case "join":
		return nil, join(a)
	case "poll":
		return poll(a)
	case "commit":
		var rows []struct {
			Topic, Metadata string
			Partition       int32
			Offset          int64
		}
		json.Unmarshal(a.Offsets, &rows)
		to := kadm.Offsets{}
		for _, one := range rows {
			to.Add(kadm.Offset{Topic: one.Topic, Partition: one.Partition, At: one.Offset, LeaderEpoch: -1, Metadata: one.Metadata})
		}
		return nil, commit(ctx, members[a.Member].client, to)
	case "leave":
		one := members[a.Member]
		delete(members, a.Member)
		one.client.Close()
		return nil, nil
	}
	return nil, fmt.Errorf("no operation %s", a.Op)
}

func whole(raw json.RawMessage) int64 {
	number, _ := strconv.ParseInt(string(raw), 10, 64)
	return number
}

func bytes(text *string) []byte {
	if text == nil {
		return nil
	}
	return append([]byte{}, *text...)
}

func text(bytes []byte) *string {
	if bytes == nil {
		return nil
	}
	text := string(bytes)
	return &text
}

func rows(records []*kgo.Record) []record {
	rows := []record{}
	for _, one := range records {
		partition, at := one.Partition, one.Timestamp.UnixMilli()
		headers := [][2]*string{}
		for _, header := range one.Headers {
			headers = append(headers, [2]*string{&header.Key, text(header.Value)})
		}
		rows = append(rows, record{one.Topic, &partition, one.Offset, &at, text(one.Key), text(one.Value), headers})
	}
	return rows
}

// explicit sends records with a partition there, and the others where murmur2 says.
func explicit(records []record) kgo.Partitioner {
	if len(records) > 0 && records[0].Partition != nil {
		return kgo.ManualPartitioner()
	}
	return kgo.StickyKeyPartitioner(nil)
}

func produce(ctx context.Context, a ask) (any, error) {
	codecs := map[string]kgo.CompressionCodec{"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(),
		"snappy": kgo.SnappyCompression(), "lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression()}
	codec, named := codecs[a.Compression]
	if !named {
		codec = kgo.NoCompression()
	}
	opts := common(kgo.RecordPartitioner(explicit(a.Records)), kgo.ProducerBatchCompression(codec),
		kgo.ProducerBatchMaxBytes(2_000_000), kgo.UnknownTopicRetries(2),
		kgo.RecordRetries(20))
	if a.Acks != nil {
		acks := map[int]kgo.Acks{0: kgo.NoAck(), 1: kgo.LeaderAck()}[*a.Acks]
		opts = append(opts, kgo.RequiredAcks(acks), kgo.DisableIdempotentWrite())
	}
	if a.Transaction != "" {
		opts = append(opts, kgo.TransactionalID(a.Transaction))
	}
	client, err := kgo.NewClient(opts...)
	if err != nil {
		return nil, err
	}
	if a.Transaction != "" && a.End == "" {
		open = append(open, client)
	} else {
		defer client.Close()
	}
	if a.Transaction != "" {
		if err := client.BeginTransaction(); err != nil {
			return nil, err
		}
	}
	records := []*kgo.Record{}
	for _, one := range a.Records {
		record := &kgo.Record{Topic: a.Topic, Key: bytes(one.Key), Value: bytes(one.Value)}
		if one.Partition != nil {
			record.Partition = *one.Partition
		}
		if one.Timestamp != nil {
			record.Timestamp = time.UnixMilli(*one.Timestamp)
		}
		for _, header := range one.Headers {
			record.Headers = append(record.Headers, kgo.RecordHeader{Key: *header[0], Value: bytes(header[1])})
		}
		records = append(records, record)
	}
	results := client.ProduceSync(ctx, records...)
	if err := results.FirstErr(); err != nil {
		return nil, err
	}
	if a.End != "" {
		if err := client.EndTransaction(ctx, kgo.TransactionEndTry(a.End == "commit")); err != nil {
			return nil, err
		}
	}
	written := []map[string]any{}
	for _, one := range records {
		written = append(written, map[string]any{"partition": one.Partition, "offset": one.Offset})
	}
	return written, nil
}

func read(ctx context.Context, a ask) (any, error) {
	from := kgo.NewOffset().AtStart()
	switch string(a.Offset) {
	case `"earliest"`:
	case `"latest"`:
		from = kgo.NewOffset().AtEnd()
	default:
		from = kgo.NewOffset().At(whole(a.Offset))
	}
	isolation := kgo.ReadUncommitted()
	if a.Committed {
		isolation = kgo.ReadCommitted()
	}
	opts := common(kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{a.Topic: {a.Partition: from}}),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(isolation), kgo.FetchMaxWait(100*time.Millisecond))
	if a.MaxBytes > 0 {
		opts = append(opts, kgo.FetchMaxBytes(a.MaxBytes), kgo.FetchMaxPartitionBytes(a.MaxBytes))
	}
	client, err := kgo.NewClient(opts...)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	found := []record{}
	for len(found) < a.Count && ctx.Err() == nil {
		fetches := client.PollFetches(ctx)
		for _, problem := range fetches.Errors() {
			if !errors.Is(problem.Err, context.DeadlineExceeded) {
				return nil, problem.Err
			}
		}
		found = append(found, rows(fetches.Records())...)
	}
	return found, nil
}
