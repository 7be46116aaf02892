// The official Go remoting client. Kinds: normal, async, oneway, batch, fifo, delay, transaction,
// transaction-check, tags, sql, compressed. Modes: push, pull, broadcast.
// A delay is a level here: the second one, five seconds.
package main

import (
	"context"
	"fmt"
	"hash/fnv"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/apache/rocketmq-client-go/v2/rlog"

	"peers/check"
)

var (
	options *check.Options
	report  *check.Report

	queuesMutex sync.Mutex
	queuesSeen  = map[string]bool{}
	brokersSeen = map[string]bool{}
)

func main() {
	rlog.SetLogLevel("fatal")
	options = check.Parse()
	if options.Kind == "delay" {
		options.Delay = 5000
	}
	report = check.NewReport("go-remoting", options)
	var err error
	switch options.Action {
	case "produce":
		err = produce()
	case "consume":
		err = consume(func() error { return nil })
	case "roundtrip":
		err = consume(produce)
	case "bench-send":
		err = benchSend()
	default:
		err = fmt.Errorf("unknown action %s", options.Action)
	}
	report.Failed(err)
	report.Exit()
}

func resolver() primitive.NsResolver {
	return primitive.NewPassthroughResolver(strings.Split(options.Endpoint, ";"))
}

func credentials() primitive.Credentials {
	return primitive.Credentials{AccessKey: options.AccessKey, SecretKey: options.SecretKey}
}

func instance() string {
	return "peers-" + strconv.FormatInt(time.Now().UnixNano(), 10)
}

func message(index int) *primitive.Message {
	sample := check.Sample{Run: options.Run, Index: index, Size: options.Size}
	m := primitive.NewMessage(options.Topic, sample.Body())
	for key, value := range sample.Properties() {
		m.WithProperty(key, value)
	}
	m.WithTag(sample.Tag()).WithKeys(sample.Keys())
	switch options.Kind {
	case "fifo":
		m.WithShardingKey(sample.Group())
		// The property by which a proxy knows a FIFO message has another name in Java.
		m.WithProperty("__SHARDINGKEY", sample.Group())
	case "delay":
		m.WithDelayTimeLevel(2)
	}
	return m
}

// byGroup sends the messages of one FIFO group to one queue.
type byGroup struct{}

func (byGroup) Select(m *primitive.Message, queues []*primitive.MessageQueue, _ string) *primitive.MessageQueue {
	hash := fnv.New32a()
	hash.Write([]byte(m.GetShardingKey()))
	return queues[int(hash.Sum32())%len(queues)]
}

func produce() error {
	if strings.HasPrefix(options.Kind, "transaction") {
		return produceInTransactions()
	}
	setup := []producer.Option{producer.WithNsResolver(resolver()), producer.WithInstanceName(instance()),
		producer.WithCredentials(credentials()),
		producer.WithGroupName(options.Group + "-producer"), producer.WithSendMsgTimeout(10 * time.Second)}
	if options.Kind == "fifo" {
		setup = append(setup, producer.WithQueueSelector(byGroup{}))
	}
	p, err := rocketmq.NewProducer(setup...)
	if err != nil {
		return err
	}
	if err = p.Start(); err != nil {
		return err
	}
	defer p.Shutdown()
	switch options.Kind {
	case "async":
		return sendAsync(p)
	case "oneway":
		return sendOneWay(p)
	case "batch":
		return sendBatch(p)
	}
	for i := range options.Count {
		if err := sendSync(p, message(i)); err != nil {
			return err
		}
		report.Sent()
	}
	return nil
}

// sendSync sends one message, or several as a batch.
func sendSync(p rocketmq.Producer, messages ...*primitive.Message) error {
	result, err := p.SendSync(context.Background(), messages...)
	if err == nil && result.Status != primitive.SendOK {
		err = fmt.Errorf("send status %d", result.Status)
	}
	return err
}

func sendAsync(p rocketmq.Producer) error {
	var answered sync.WaitGroup
	for i := range options.Count {
		answered.Add(1)
		err := p.SendAsync(context.Background(), func(_ context.Context, result *primitive.SendResult, err error) {
			defer answered.Done()
			if err == nil && result.Status != primitive.SendOK {
				err = fmt.Errorf("send status %d", result.Status)
			}
			if err != nil {
				report.Failed(err)
				return
			}
			report.Sent()
		}, message(i))
		if err != nil {
			return err
		}
	}
	answered.Wait()
	return nil
}

func sendOneWay(p rocketmq.Producer) error {
	for i := range options.Count {
		if err := p.SendOneWay(context.Background(), message(i)); err != nil {
			return err
		}
		report.Sent()
	}
	return nil
}

func sendBatch(p rocketmq.Producer) error {
	var batch []*primitive.Message
	for i := range options.Count {
		batch = append(batch, message(i))
	}
	if err := sendSync(p, batch...); err != nil {
		return err
	}
	for range options.Count {
		report.Sent()
	}
	return nil
}

// listener decides transactions by the index property of their message.
type listener struct{}

func (listener) ExecuteLocalTransaction(m *primitive.Message) primitive.LocalTransactionState {
	index, _ := strconv.Atoi(m.GetProperty("index"))
	switch {
	case options.Kind == "transaction-check":
		return primitive.UnknowState
	case index < options.Count:
		return primitive.CommitMessageState
	default:
		return primitive.RollbackMessageState
	}
}

func (listener) CheckLocalTransaction(m *primitive.MessageExt) primitive.LocalTransactionState {
	report.Seen("check of " + m.GetProperty("index"))
	return primitive.CommitMessageState
}

func produceInTransactions() error {
	p, err := rocketmq.NewTransactionProducer(listener{}, producer.WithNsResolver(resolver()),
		producer.WithInstanceName(instance()), producer.WithGroupName(options.Group+"-producer"),
		producer.WithCredentials(credentials()))
	if err != nil {
		return err
	}
	if err = p.Start(); err != nil {
		return err
	}
	defer p.Shutdown()
	for i := range options.Count + options.RolledBack() {
		if options.Kind == "transaction-check" {
			report.Expect(fmt.Sprintf("check of %d", i))
		}
		if _, err := p.SendMessageInTransaction(context.Background(), message(i)); err != nil {
			return err
		}
		report.Sent()
	}
	if options.Kind == "transaction-check" {
		report.Await()
	}
	return nil
}

func consume(produce func() error) error {
	if options.Refuse > 0 {
		report.Expect("redelivery")
	}
	for receiver := range options.Copies() {
		start := func() (func(), error) { return startPush(receiver) }
		if options.Mode == "pull" {
			start = startPull
		}
		stop, err := start()
		if err != nil {
			return err
		}
		defer stop()
	}
	time.Sleep(time.Second)
	if err := produce(); err != nil {
		return err
	}
	report.Await()
	return nil
}

func take(receiver int, messages []*primitive.MessageExt) {
	for _, m := range messages {
		if m.ReconsumeTimes > 0 {
			report.Seen("redelivery")
		}
		if options.Kind == "compressed" {
			report.Claim("compressed in store", int(m.StoreSize) < options.Size/2, m.StoreSize)
		}
		noteQueue(m.Queue)
		report.Origin(m.GetProperties(), m.GetProperty("__SHARDINGKEY"), time.UnixMilli(m.BornTimestamp))
		report.ReceivedBy(receiver, m.Body, m.GetTags(), strings.Fields(m.GetKeys()), m.GetProperties())
	}
}

// noteQueue counts the queues and the brokers that messages came from.
func noteQueue(queue *primitive.MessageQueue) {
	if queue == nil {
		return
	}
	queuesMutex.Lock()
	defer queuesMutex.Unlock()
	queuesSeen[fmt.Sprintf("%s/%d", queue.BrokerName, queue.QueueId)] = true
	brokersSeen[queue.BrokerName] = true
	report.Put("queues", len(queuesSeen))
	report.Put("brokers", len(brokersSeen))
}

func selector() consumer.MessageSelector {
	if options.Kind == "sql" {
		return consumer.MessageSelector{Type: consumer.SQL92, Expression: "index between 3 and 7"}
	}
	return consumer.MessageSelector{Type: consumer.TAG, Expression: options.Tags}
}

func consumerOptions() []consumer.Option {
	return []consumer.Option{consumer.WithNsResolver(resolver()), consumer.WithInstance(instance()),
		consumer.WithCredentials(credentials()),
		consumer.WithGroupName(options.Group), consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset)}
}

func startPush(receiver int) (func(), error) {
	model := consumer.Clustering
	if options.Mode == "broadcast" {
		model = consumer.BroadCasting
	}
	c, err := rocketmq.NewPushConsumer(append(consumerOptions(),
		consumer.WithConsumerModel(model), consumer.WithConsumerOrder(options.Kind == "fifo"))...)
	if err != nil {
		return nil, err
	}
	var refused atomic.Int32
	refused.Store(int32(options.Refuse))
	err = c.Subscribe(options.Topic, selector(),
		func(ctx context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
			if refused.Add(-1) >= 0 {
				if concurrent, ok := primitive.GetConcurrentlyCtx(ctx); ok {
					concurrent.DelayLevelWhenNextConsume = 1
				}
				return consumer.ConsumeRetryLater, nil
			}
			take(receiver, messages)
			return consumer.ConsumeSuccess, nil
		})
	if err != nil {
		return nil, err
	}
	return func() { _ = c.Shutdown() }, c.Start()
}

func startPull() (func(), error) {
	c, err := rocketmq.NewPullConsumer(consumerOptions()...)
	if err != nil {
		return nil, err
	}
	if err = c.Subscribe(options.Topic, selector()); err != nil {
		return nil, err
	}
	if err = c.Start(); err != nil {
		return nil, err
	}
	go func() {
		for {
			request, err := c.Poll(context.Background(), time.Second)
			if err == nil {
				take(0, request.GetMsgList())
				c.ACK(context.Background(), request, consumer.ConsumeSuccess)
			}
		}
	}()
	return func() { _ = c.Shutdown() }, nil
}

// benchSend sends as fast as the allowed number of unanswered sends permits.
func benchSend() error {
	p, err := rocketmq.NewProducer(producer.WithNsResolver(resolver()),
		producer.WithInstanceName(instance()), producer.WithGroupName(options.Group+"-producer"),
		producer.WithCredentials(credentials()))
	if err != nil {
		return err
	}
	if err = p.Start(); err != nil {
		return err
	}
	defer p.Shutdown()
	body := make([]byte, options.Size)
	window := make(chan struct{}, options.Concurrency)
	var failures atomic.Int32
	begin := time.Now()
	for range options.Count {
		window <- struct{}{}
		err := p.SendAsync(context.Background(), func(_ context.Context, _ *primitive.SendResult, err error) {
			if err != nil {
				failures.Add(1)
			}
			<-window
		}, primitive.NewMessage(options.Topic, body))
		if err != nil {
			return err
		}
	}
	for range options.Concurrency {
		window <- struct{}{}
	}
	report.Rate(options.Count, time.Since(begin), int(failures.Load()))
	return nil
}
