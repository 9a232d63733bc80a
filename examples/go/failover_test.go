package examples

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// must ends the test at the first error.
func must[T any](value T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}

func servers(t *testing.T, control *Control) kgo.Opt {
	cluster := must(control.Cluster())(t)
	return kgo.SeedBrokers(strings.Split(cluster["kafka_bootstrap_servers"].(string), ",")...)
}

func createTopic(ctx context.Context, t *testing.T, control *Control, name string) {
	client := must(kgo.NewClient(servers(t, control)))(t)
	defer client.Close()
	must(kadm.NewClient(client).CreateTopic(ctx, 1, 3, nil, name))(t)
	must(control.Wait(JSON{"in_sync": []string{name}}))(t)
}

func TestNoRecordIsLostWhenTheLeaderIsKilled(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	control := NewControl()
	must(control.Reset())(t)
	createTopic(ctx, t, control, "orders")
	producer := must(kgo.NewClient(servers(t, control)))(t)
	defer producer.Close()
	send := func(from, to int) {
		for number := from; number < to; number++ {
			record := &kgo.Record{Topic: "orders", Value: []byte(fmt.Sprint(number))}
			if err := producer.ProduceSync(ctx, record).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
	}
	send(0, 20)
	killed := must(control.Broker("leader-of:orders-0", "kill"))(t)["broker"]
	send(20, 40)
	must(control.Wait(JSON{"leader": JSON{"orders-0": JSON{"not": killed}}}))(t)
	must(control.Broker(fmt.Sprint(killed), "start"))(t)
	must(control.Wait(JSON{"isr": JSON{"orders-0": []int{0, 1, 2}}}))(t)

	start := map[int32]kgo.Offset{0: kgo.NewOffset().AtStart()}
	consumer := must(kgo.NewClient(servers(t, control), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{"orders": start})))(t)
	defer consumer.Close()
	for number := 0; number < 40; {
		fetches := consumer.PollFetches(ctx)
		if ctx.Err() != nil {
			t.Fatalf("only %d records in time", number)
		}
		for _, record := range fetches.Records() {
			if string(record.Value) != fmt.Sprint(number) {
				t.Fatalf("record %d is %s", number, record.Value)
			}
			number++
		}
	}
}

func TestAProduceIsSentAgainWhileReplicasAreTooFew(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	control := NewControl()
	must(control.Reset())(t)
	createTopic(ctx, t, control, "audit")
	fault := must(control.Fault(JSON{"keys": []string{"Produce"}, "topic": "audit", "error": "NOT_ENOUGH_REPLICAS", "count": 2}))(t)
	producer := must(kgo.NewClient(servers(t, control)))(t)
	defer producer.Close()
	if err := producer.ProduceSync(ctx, &kgo.Record{Topic: "audit", Value: []byte("one")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	must(control.WaitFault(fault, 2))(t)
	if found := must(control.Partition("audit", 0))(t); found["high_watermark"].(float64) != 1 {
		t.Fatalf("high watermark %v", found["high_watermark"])
	}
	if _, err := control.Partition("nothing", 0); err == nil || err.(*Refused).Status != 404 {
		t.Fatalf("an unknown topic is 404, not %v", err)
	}
}
