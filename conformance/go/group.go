// Members of groups.
package main

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

type place struct {
	topic     string
	partition int32
}

type member struct {
	client *kgo.Client
	lock   sync.Mutex
	owned  map[place]bool
}

func join(a ask) error {
	one := &member{owned: map[place]bool{}}
	change := func(mine bool) func(context.Context, *kgo.Client, map[string][]int32) {
		return func(_ context.Context, _ *kgo.Client, partitions map[string][]int32) {
			one.lock.Lock()
			defer one.lock.Unlock()
			for topic, numbers := range partitions {
				for _, number := range numbers {
					if mine {
						one.owned[place{topic, number}] = true
					} else {
						delete(one.owned, place{topic, number})
					}
				}
			}
		}
	}
	session := 30 * time.Second
	if a.SessionMs > 0 {
		session = time.Duration(a.SessionMs) * time.Millisecond
	}
	reset := kgo.NewOffset().AtStart()
	if a.Reset == "latest" {
		reset = kgo.NewOffset().AtEnd()
	}
	opts := common(kgo.ConsumerGroup(a.Group), kgo.ConsumeTopics(a.Topics...), kgo.DisableAutoCommit(),
		kgo.HeartbeatInterval(300*time.Millisecond), kgo.SessionTimeout(session), kgo.ConsumeResetOffset(reset),
		kgo.FetchMaxWait(100*time.Millisecond), kgo.BlockRebalanceOnPoll(),
		kgo.OnPartitionsAssigned(change(true)), kgo.OnPartitionsRevoked(change(false)), kgo.OnPartitionsLost(change(false)))
	if a.Instance != "" {
		opts = append(opts, kgo.InstanceID(a.Instance))
	}
	if a.Pattern != "" {
		opts = append(opts, kgo.ConsumeRegex(), kgo.ConsumeTopics(a.Pattern))
	}
	balancers := map[string]kgo.GroupBalancer{"range": kgo.RangeBalancer(), "roundrobin": kgo.RoundRobinBalancer(),
		"cooperative-sticky": kgo.CooperativeStickyBalancer()}
	if balancer, named := balancers[a.Strategy]; named {
		opts = append(opts, kgo.Balancers(balancer))
	}
	client, err := kgo.NewClient(opts...)
	one.client = client
	members[a.Member] = one
	return err
}

func poll(a ask) (any, error) {
	one := members[a.Member]
	one.client.AllowRebalance()
	wait, cancel := context.WithTimeout(context.Background(), time.Duration(a.Ms)*time.Millisecond)
	defer cancel()
	fetches := one.client.PollFetches(wait)
	defer one.client.AllowRebalance()
	for _, problem := range fetches.Errors() {
		if !errors.Is(problem.Err, context.DeadlineExceeded) && !errors.Is(problem.Err, kerr.UnknownTopicOrPartition) {
			return nil, problem.Err
		}
	}
	records := fetches.Records()
	if a.Commit && len(records) > 0 {
		ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
		defer cancel()
		if err := one.client.CommitRecords(ctx, records...); err != nil {
			return nil, err
		}
	}
	one.lock.Lock()
	defer one.lock.Unlock()
	assigned := [][]any{}
	for at := range one.owned {
		assigned = append(assigned, []any{at.topic, at.partition})
	}
	sort.Slice(assigned, func(i, j int) bool { return fmt.Sprint(assigned[i]) < fmt.Sprint(assigned[j]) })
	return map[string]any{"records": rows(records), "assigned": assigned}, nil
}

// commit as the member that the client is, with metadata, which goes into the request before it is sent.
func commit(ctx context.Context, client *kgo.Client, to kadm.Offsets) error {
	offsets := map[string]map[int32]kgo.EpochOffset{}
	to.Each(func(one kadm.Offset) {
		if offsets[one.Topic] == nil {
			offsets[one.Topic] = map[int32]kgo.EpochOffset{}
		}
		offsets[one.Topic][one.Partition] = kgo.EpochOffset{Epoch: -1, Offset: one.At}
	})
	ctx = kgo.PreCommitFnContext(ctx, func(request *kmsg.OffsetCommitRequest) error {
		for t := range request.Topics {
			for p := range request.Topics[t].Partitions {
				partition := &request.Topics[t].Partitions[p]
				if one, named := to.Lookup(request.Topics[t].Topic, partition.Partition); named {
					partition.Metadata = &one.Metadata
				}
			}
		}
		return nil
	})
	var failed error
	client.CommitOffsetsSync(ctx, offsets, func(_ *kgo.Client, _ *kmsg.OffsetCommitRequest, answer *kmsg.OffsetCommitResponse, err error) {
		failed = err
		if err != nil {
			return
		}
		for _, topic := range answer.Topics {
			for _, partition := range topic.Partitions {
				if err := kerr.ErrorForCode(partition.ErrorCode); err != nil && failed == nil {
					failed = err
				}
			}
		}
	})
	return failed
}
