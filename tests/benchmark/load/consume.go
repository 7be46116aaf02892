package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

const (
	batchSize    = 32
	codePullNone = 19
	codePullNow  = 20
	codeMoved    = 21
	codeFull     = 209
	codeTimeout  = 210
)

// records counts the stored messages in a body.
func records(body []byte) (int, error) {
	count := 0
	for len(body) > 0 {
		if len(body) < 4 {
			return 0, errors.New("a torn message")
		}
		size := int(binary.BigEndian.Uint32(body))
		if size < 4 || size > len(body) {
			return 0, errors.New("a torn message")
		}
		body = body[size:]
		count++
	}
	return count, nil
}

// pullMessages pulls queue after queue, from the start again after the end.
func pullMessages(opts *options, rep *report) error {
	r, brokers, err := open(opts, rep)
	if err != nil {
		return err
	}
	r.work(func(index int, link *link, rec *recorder) error {
		target := brokers[index%len(brokers)]
		walk := &pullWalk{run: r, rec: rec, queues: target.readers, queue: index % max(1, target.readers)}
		walk.head, walk.tail = pullFields(opts, target.name)
		for walk.idle <= target.readers && r.take(0) && (opts.messages == 0 || r.left.Load() > 0) {
			if err := walk.pull(link); err != nil {
				return err
			}
		}
		if walk.idle > target.readers {
			return errors.New("the topic holds no messages")
		}
		return nil
	})
	return nil
}

// pullFields are the fields of a pull before and after queue and offset.
func pullFields(opts *options, broker string) (head, tail []byte) {
	head = appendField(appendField(nil, "consumerGroup", opts.group), "topic", opts.topic)
	tail = appendNumber(nil, "maxMsgNums", batchSize)
	tail = appendNumber(tail, "sysFlag", 4|2) // the subscription is here; wait for messages
	tail = appendNumber(tail, "commitOffset", 0)
	tail = appendNumber(tail, "suspendTimeoutMillis", 1000)
	tail = appendField(tail, "subscription", "*")
	tail = appendNumber(tail, "subVersion", time.Now().UnixMilli())
	tail = appendField(tail, "expressionType", "TAG")
	tail = appendField(tail, "bname", broker)
	return head, withoutComma(tail)
}

// pullWalk is where one connection stands.
type pullWalk struct {
	run    *run
	rec    *recorder
	head   []byte
	tail   []byte
	fields []byte
	queues int
	queue  int
	offset int64
	idle   int // queues in a row without a message
}

func (w *pullWalk) pull(link *link) error {
	w.fields = append(w.fields[:0], w.head...)
	w.fields = appendNumber(w.fields, "queueId", int64(w.queue))
	w.fields = appendNumber(w.fields, "queueOffset", w.offset)
	w.fields = append(w.fields, w.tail...)
	var failed error
	err := link.call(codePull, w.fields, nil, func(f *frame, sent, now time.Time) {
		failed = w.answered(f, sent, now)
	})
	return errors.Join(err, failed)
}

func (w *pullWalk) answered(f *frame, sent, now time.Time) error {
	switch f.code {
	case 0, codePullNone, codePullNow, codeMoved:
	default:
		return errors.New(f.failure("a pull was"))
	}
	count, err := records(f.body)
	if err != nil {
		return err
	}
	ext, err := f.fields()
	if err != nil {
		return err
	}
	var offsets [3]int64
	for i, name := range []string{"nextBeginOffset", "minOffset", "maxOffset"} {
		if offsets[i], err = number(ext[name]); err != nil {
			return fmt.Errorf("%s of a pull: %w", name, err)
		}
	}
	next, least, end := offsets[0], offsets[1], offsets[2]
	if f.code == 0 && count == 0 {
		return errors.New("a pull was answered with code 0 and no message")
	}
	if count > 0 {
		w.idle = 0
		w.run.left.Add(-int64(count))
		w.rec.done(sent, now, count)
	}
	w.offset = next
	if next >= end {
		if w.offset = least; count == 0 {
			w.idle++
		}
		// Offsets differ little between queues; where one does not fit, the broker says which does.
		w.queue = (w.queue + 1) % w.queues
	}
	return nil
}

// popMessages pops each queue to its end and acknowledges every message.
func popMessages(opts *options, rep *report) error {
	r, brokers, err := open(opts, rep)
	if err != nil {
		return err
	}
	pops, popped := make([]*recorder, len(r.links)), newHistogram()
	r.work(func(index int, link *link, rec *recorder) error {
		target := brokers[index%len(brokers)]
		pops[index] = &recorder{run: r, latencies: popped}
		drain := &popDrain{run: r, rec: rec, pops: pops[index], broker: target.name}
		// Connections to one broker divide its queues.
		share := (len(r.links) - index%len(brokers) + len(brokers) - 1) / len(brokers)
		for queue := index / len(brokers); queue < target.readers; queue += share {
			if err := drain.queue(link, queue); err != nil {
				return err
			}
		}
		return nil
	})
	for _, rec := range pops {
		rep.count("popped", int(rec.all.Load()))
	}
	rep.count("acknowledged", int(rep.AllMessages))
	popLatency := popped.latency()
	rep.PopLatency = &popLatency
	return nil
}

// popDrain is the work of one connection.
type popDrain struct {
	run    *run
	rec    *recorder // acknowledgements
	pops   *recorder
	broker string
	fields []byte
}

// receipt is what acknowledges one message.
type receipt struct {
	topic  string
	extra  string
	queue  int64
	offset int64
}

// queue pops one queue until the broker says that nothing is left.
func (d *popDrain) queue(link *link, queue int) error {
	for d.run.take(0) && (d.run.opts.messages == 0 || d.run.left.Load() > 0) {
		receipts, rest, err := d.pop(link, queue)
		if err != nil {
			return err
		}
		d.run.left.Add(-int64(len(receipts)))
		if err := d.acknowledge(link, receipts); err != nil {
			return err
		}
		if rest <= 0 {
			return nil
		}
	}
	return nil
}

func (d *popDrain) pop(link *link, queue int) (receipts []receipt, rest int64, failed error) {
	opts := d.run.opts
	fields := appendField(appendField(nil, "consumerGroup", opts.group), "topic", opts.topic)
	fields = appendNumber(fields, "queueId", int64(queue))
	fields = appendNumber(fields, "maxMsgNums", batchSize)
	fields = appendNumber(fields, "invisibleTime", 60000)
	fields = appendNumber(fields, "pollTime", 1000)
	fields = appendNumber(fields, "bornTime", 0) // only the broker's clock counts then
	fields = appendNumber(fields, "initMode", 0)
	fields = appendField(appendField(fields, "expType", "TAG"), "exp", "*")
	fields = appendField(appendField(fields, "order", "false"), "bname", d.broker)
	err := link.call(codePop, withoutComma(fields), nil, func(f *frame, sent, now time.Time) {
		switch f.code {
		case codePullNone, codeTimeout, codeFull:
			return
		case 0:
		default:
			failed = errors.New(f.failure("a pop was"))
			return
		}
		receipts, rest, failed = d.receipts(f)
		d.pops.done(sent, now, len(receipts))
	})
	return receipts, rest, errors.Join(err, failed)
}

func (d *popDrain) receipts(f *frame) ([]receipt, int64, error) {
	count, err := records(f.body)
	if err != nil {
		return nil, 0, err
	}
	ext, err := f.fields()
	if err != nil {
		return nil, 0, err
	}
	rest, err := number(ext["restNum"])
	if err != nil {
		return nil, 0, fmt.Errorf("restNum of a pop: %w", err)
	}
	receipts, err := popped(ext, d.run.opts.topic, d.run.opts.group, d.broker)
	if err == nil && len(receipts) != count {
		err = fmt.Errorf("a pop of %d messages came with %d offsets", count, len(receipts))
	}
	return receipts, rest, err
}

// popped builds the receipts of a pop from its answer's fields.
func popped(ext map[string]string, topic, group, broker string) ([]receipt, error) {
	starts := map[string]string{}
	for item := range strings.SplitSeq(ext["startOffsetInfo"], ";") {
		if words := strings.Fields(item); len(words) == 3 {
			starts[words[0]+" "+words[1]] = words[2]
		}
	}
	topics := map[string]string{"0": topic, "1": "%RETRY%" + group + "_" + topic, "2": "%RETRY%" + group + "+" + topic}
	var receipts []receipt
	for item := range strings.SplitSeq(ext["msgOffsetInfo"], ";") {
		words := strings.Fields(item)
		if len(words) != 3 || topics[words[0]] == "" {
			return nil, fmt.Errorf("msgOffsetInfo %q", ext["msgOffsetInfo"])
		}
		kind, queueWord := words[0], words[1]
		queue, err := number(queueWord)
		if err != nil {
			return nil, err
		}
		start, known := starts[kind+" "+queueWord]
		for offsetWord := range strings.SplitSeq(words[2], ",") {
			offset, err := number(offsetWord)
			if err != nil {
				return nil, err
			}
			if !known {
				start, known = offsetWord, true
			}
			extra := strings.Join([]string{
				start, ext["popTime"], ext["invisibleTime"], ext["reviveQid"], kind, broker, queueWord, offsetWord,
			}, " ")
			receipts = append(receipts, receipt{topics[kind], extra, queue, offset})
		}
	}
	return receipts, nil
}

// acknowledge sends one ACK_MESSAGE per message, a window of them in flight.
func (d *popDrain) acknowledge(link *link, receipts []receipt) error {
	return link.pipeline(d.run.opts.window, func(buf []byte, opaque int) ([]byte, bool) {
		if len(receipts) == 0 {
			return buf, false
		}
		this := receipts[0]
		receipts = receipts[1:]
		fields := appendField(d.fields[:0], "consumerGroup", d.run.opts.group)
		fields = appendField(fields, "topic", this.topic)
		fields = appendField(fields, "queueId", strconv.FormatInt(this.queue, 10))
		fields = appendField(fields, "extraInfo", this.extra)
		fields = appendNumber(fields, "offset", this.offset)
		d.fields = appendField(fields, "bname", d.broker)
		return appendFrame(buf, codeAck, opaque, withoutComma(d.fields), nil), true
	}, func(f *frame, sent, now time.Time) {
		if f.code != 0 {
			d.run.fail(f.failure("an acknowledgement was"))
			return
		}
		d.rec.done(sent, now, 1)
	})
}
