// A member of a group of the consumer protocol (KIP-848), as GroupMember.java is one: it commits after every batch that it
// reads, and its end is that of stdin. It prints {"assigned": [partitions]} whenever they have changed, and
// {"committed": count} after each commit with the number of records read so far.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"os"
	"slices"
	"sync"

	"github.com/twmb/franz-go/pkg/kgo"
)

// owned has the partitions of a member: kgo calls it while it polls and beside that.
type owned struct {
	sync.Mutex
	partitions []int32
}

func (o *owned) add(_ context.Context, _ *kgo.Client, added map[string][]int32) {
	o.change(func(now []int32) []int32 { return slices.Concat(now, flat(added)) })
}

func (o *owned) remove(_ context.Context, _ *kgo.Client, removed map[string][]int32) {
	lost := flat(removed)
	o.change(func(now []int32) []int32 {
		return slices.DeleteFunc(now, func(one int32) bool { return slices.Contains(lost, one) })
	})
}

func (o *owned) change(change func([]int32) []int32) {
	o.Lock()
	defer o.Unlock()
	o.partitions = change(o.partitions)
	slices.Sort(o.partitions)
	shown, _ := json.Marshal(map[string][]int32{"assigned": append([]int32{}, o.partitions...)})
	fmt.Println(string(shown))
}

func flat(topics map[string][]int32) []int32 {
	var found []int32
	for _, partitions := range topics {
		found = append(found, partitions...)
	}
	return found
}

func member(servers kgo.Opt, group string, topic string) {
	ends, end := context.WithCancel(context.Background())
	go func() {
		io.Copy(io.Discard, os.Stdin)
		end()
	}()
	has := &owned{}
	client, err := kgo.NewClient(
		servers,
		kgo.ConsumerGroup(group),
		kgo.ConsumeTopics(topic),
		kgo.Balancers(kgo.StickyBalancer()),
		kgo.ServerSideBalancer(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DisableAutoCommit(),
		kgo.OnPartitionsAssigned(has.add),
		kgo.OnPartitionsRevoked(has.remove),
		kgo.OnPartitionsLost(has.remove),
	)
	if err != nil {
		log.Fatal(err)
	}
	read := 0
	for ends.Err() == nil {
		fetches := client.PollFetches(ends)
		for _, problem := range fetches.Errors() {
			log.Println(problem.Err)
		}
		if fetches.NumRecords() == 0 {
			continue
		}
		read += fetches.NumRecords()
		if err := client.CommitUncommittedOffsets(ends); err != nil {
			log.Println("not committed:", err) // a rebalance; others read it again
			continue
		}
		fmt.Printf("{\"committed\": %d}\n", read)
	}
	client.Close()
}
