// Clients of RocketMQ's own for Go, driven by lines of JSON: one object is a request, one line its
// answer, {"ok": …} or {"error": "…"}. What a request starts stays connected until "close", so that
// what a client says without waiting for an answer arrives.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

// Nobody waits longer for messages: a client that has lost an answer asks again after twenty seconds.
const patience = 2 * time.Minute

// The level of the delay of a message that comes back: half an hour.
const laterLevel = 16

type message struct {
	Topic      string            `json:"topic"`
	QueueID    int               `json:"queueId"`
	Body       []byte            `json:"body"`
	Properties map[string]string `json:"properties"`
}

type request struct {
	Do         string    `json:"do"`
	Address    string    `json:"address"`
	How        string    `json:"how"`
	Messages   []message `json:"messages"`
	State      int       `json:"state"`
	Topic      string    `json:"topic"`
	Group      string    `json:"group"`
	Expression string    `json:"expression"`
	Orderly    bool      `json:"orderly"`
	Failing    bool      `json:"failing"`
	Count      int       `json:"count"`
	Broker     string    `json:"broker"`
	QueueID    int       `json:"queueId"`
	Offset     int64     `json:"offset"`
}

// What has been started, the last first.
type started interface {
	Shutdown() error
}

var (
	running   []started
	consumers []interface{ PersistConsumerOffset() error }
)

func main() {
	rlog.SetLogLevel("error")
	answers := json.NewEncoder(os.Stdout)
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<24)
	for lines.Scan() {
		var asked request
		result, err := any(nil), json.Unmarshal(lines.Bytes(), &asked)
		if err == nil {
			result, err = answer(&asked)
		}
		said := map[string]any{"ok": result}
		if err != nil {
			said = map[string]any{"error": err.Error()}
		}
		if answers.Encode(said) != nil {
			os.Exit(1)
		}
	}
}

func answer(asked *request) (any, error) {
	switch asked.Do {
	case "send":
		return send(asked)
	case "transact":
		return transact(asked)
	case "consume":
		return consume(asked)
	case "poll":
		return poll(asked)
	case "pull":
		return pull(asked)
	case "commit":
		for _, one := range consumers {
			if err := one.PersistConsumerOffset(); err != nil {
				return nil, err
			}
		}
		return nil, nil
	case "close":
		for n := len(running) - 1; n >= 0; n-- {
			if err := running[n].Shutdown(); err != nil {
				return nil, err
			}
		}
		running, consumers = nil, nil
		return nil, nil
	}
	return nil, fmt.Errorf("nobody knows %q", asked.Do)
}

// A name of its own for each client: those of one name would share a connection, and its end.
func instance() string {
	return fmt.Sprintf("go-%d-%d", os.Getpid(), len(running))
}

func outgoing(row message, broker string) *primitive.Message {
	made := primitive.NewMessage(row.Topic, row.Body)
	made.WithProperties(row.Properties)
	made.Queue = &primitive.MessageQueue{Topic: row.Topic, BrokerName: broker, QueueId: row.QueueID}
	return made
}

func ofProducer(asked *request) []producer.Option {
	return []producer.Option{
		producer.WithNameServer(primitive.NamesrvAddr{asked.Address}),
		producer.WithGroupName("go-senders"),
		producer.WithInstanceName(instance()),
		producer.WithQueueSelector(producer.NewManualQueueSelector()),
		// What was sent twice would be there twice.
		producer.WithRetry(0),
	}
}

// send gives what becomes of messages, one after the other, "how": sync, async, oneway, or batch, all
// of them as one.
func send(asked *request) (any, error) {
	sender, err := rocketmq.NewProducer(ofProducer(asked)...)
	if err != nil {
		return nil, err
	}
	if err = sender.Start(); err != nil {
		return nil, err
	}
	running = append(running, sender)
	var messages []*primitive.Message
	for _, row := range asked.Messages {
		messages = append(messages, outgoing(row, asked.Broker))
	}
	ctx := context.Background()
	if asked.How == "batch" {
		sent, err := sender.SendSync(ctx, messages...)
		return []*primitive.SendResult{sent}, err
	}
	results := []*primitive.SendResult{}
	for _, one := range messages {
		switch asked.How {
		case "sync":
			sent, err := sender.SendSync(ctx, one)
			if err != nil {
				return nil, err
			}
			results = append(results, sent)
		case "async":
			sent, err := sendAsync(sender, one)
			if err != nil {
				return nil, err
			}
			results = append(results, sent)
		case "oneway":
			if err := sender.SendOneWay(ctx, one); err != nil {
				return nil, err
			}
		default:
			return nil, fmt.Errorf("nobody sends %q", asked.How)
		}
	}
	return results, nil
}

func sendAsync(sender rocketmq.Producer, one *primitive.Message) (*primitive.SendResult, error) {
	type told struct {
		sent *primitive.SendResult
		err  error
	}
	done := make(chan told, 2)
	call := func(_ context.Context, sent *primitive.SendResult, err error) { done <- told{sent, err} }
	if err := sender.SendAsync(context.Background(), call, one); err != nil {
		return nil, err
	}
	got := <-done
	return got.sent, got.err
}

type listener struct {
	state primitive.LocalTransactionState
}

func (l listener) ExecuteLocalTransaction(*primitive.Message) primitive.LocalTransactionState {
	return l.state
}

func (l listener) CheckLocalTransaction(*primitive.MessageExt) primitive.LocalTransactionState {
	return primitive.UnknowState
}

// transact sends half messages, of each of which their producer then says "state".
func transact(asked *request) (any, error) {
	own := listener{primitive.LocalTransactionState(asked.State)}
	sender, err := rocketmq.NewTransactionProducer(own, ofProducer(asked)...)
	if err != nil {
		return nil, err
	}
	if err = sender.Start(); err != nil {
		return nil, err
	}
	running = append(running, sender)
	results := []*primitive.TransactionSendResult{}
	for _, row := range asked.Messages {
		sent, err := sender.SendMessageInTransaction(context.Background(), outgoing(row, asked.Broker))
		if err != nil {
			return nil, err
		}
		results = append(results, sent)
	}
	return results, nil
}

func ofConsumer(asked *request) []consumer.Option {
	return []consumer.Option{
		consumer.WithNameServer(primitive.NamesrvAddr{asked.Address}),
		consumer.WithGroupName(asked.Group),
		consumer.WithInstance(instance()),
		consumer.WithConsumerOrder(asked.Orderly),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
	}
}

func selector(asked *request) consumer.MessageSelector {
	return consumer.MessageSelector{Type: consumer.TAG, Expression: asked.Expression}
}

// consume gives what a push consumer gets until there are "count" messages; with "orderly" queue by
// queue in order; with "failing" it wants each again, later.
func consume(asked *request) (any, error) {
	receiver, err := rocketmq.NewPushConsumer(ofConsumer(asked)...)
	if err != nil {
		return nil, err
	}
	var lock sync.Mutex
	rows, known := []map[string]any{}, map[string]bool{}
	enough := make(chan struct{})
	take := func(ctx context.Context, got ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		lock.Lock()
		defer lock.Unlock()
		before := len(rows)
		for _, one := range got {
			// A broker may give it again whose client had no answer in time.
			if !known[one.OffsetMsgId] {
				known[one.OffsetMsgId] = true
				rows = append(rows, row(one))
			}
		}
		if before < asked.Count && len(rows) >= asked.Count {
			close(enough)
		}
		if asked.Failing {
			if own, is := primitive.GetConcurrentlyCtx(ctx); is {
				own.DelayLevelWhenNextConsume = laterLevel
			}
			return consumer.ConsumeRetryLater, nil
		}
		return consumer.ConsumeSuccess, nil
	}
	if err = receiver.Subscribe(asked.Topic, selector(asked), take); err != nil {
		return nil, err
	}
	if err = receiver.Start(); err != nil {
		return nil, err
	}
	running = append(running, receiver)
	consumers = append(consumers, receiver.(interface{ PersistConsumerOffset() error }))
	select {
	case <-enough:
	case <-time.After(patience):
	}
	lock.Lock()
	defer lock.Unlock()
	return append([]map[string]any{}, rows...), nil
}

func puller(asked *request) (rocketmq.PullConsumer, error) {
	receiver, err := rocketmq.NewPullConsumer(ofConsumer(asked)...)
	if err != nil {
		return nil, err
	}
	if err = receiver.Subscribe(asked.Topic, selector(asked)); err != nil {
		return nil, err
	}
	if err = receiver.Start(); err != nil {
		return nil, err
	}
	running = append(running, receiver)
	return receiver, nil
}

// poll gives what a pull consumer polls until there are "count" messages, each of which it acknowledges.
func poll(asked *request) (any, error) {
	receiver, err := puller(asked)
	if err != nil {
		return nil, err
	}
	consumers = append(consumers, receiver.(interface{ PersistConsumerOffset() error }))
	rows, known := []map[string]any{}, map[string]bool{}
	ctx, end := context.Background(), time.Now().Add(patience)
	for len(rows) < asked.Count && time.Now().Before(end) {
		got, err := receiver.Poll(ctx, time.Second)
		if consumer.IsNoNewMsgError(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		for _, one := range got.GetMsgList() {
			// As above: a client that takes a queue up again begins where it has committed.
			if !known[one.OffsetMsgId] {
				known[one.OffsetMsgId] = true
				rows = append(rows, row(one))
			}
		}
		receiver.ACK(ctx, got, consumer.ConsumeSuccess)
	}
	return rows, nil
}

// pull gives one answer to a pull of "count" messages of a queue from "offset" on.
func pull(asked *request) (any, error) {
	receiver, err := puller(asked)
	if err != nil {
		return nil, err
	}
	queue := &primitive.MessageQueue{Topic: asked.Topic, BrokerName: asked.Broker, QueueId: asked.QueueID}
	pulled, err := receiver.PullFrom(context.Background(), queue, asked.Offset, asked.Count)
	if err != nil {
		return nil, err
	}
	rows := []map[string]any{}
	for _, one := range pulled.GetMessageExts() {
		rows = append(rows, row(one))
	}
	return map[string]any{"result": pulled, "messages": rows}, nil
}

func row(one *primitive.MessageExt) map[string]any {
	return map[string]any{
		"topic":                     one.Topic,
		"broker":                    one.Queue.BrokerName,
		"queueId":                   one.Queue.QueueId,
		"flag":                      one.Flag,
		"body":                      one.Body,
		"transactionId":             one.TransactionId,
		"properties":                one.GetProperties(),
		"msgId":                     one.MsgId,
		"offsetMsgId":               one.OffsetMsgId,
		"storeSize":                 one.StoreSize,
		"queueOffset":               one.QueueOffset,
		"sysFlag":                   one.SysFlag,
		"bornTimestamp":             one.BornTimestamp,
		"bornHost":                  one.BornHost,
		"storeTimestamp":            one.StoreTimestamp,
		"storeHost":                 one.StoreHost,
		"physicalOffset":            one.CommitLogOffset,
		"bodyCrc":                   one.BodyCRC,
		"reconsumeTimes":            one.ReconsumeTimes,
		"preparedTransactionOffset": one.PreparedTransactionOffset,
	}
}
