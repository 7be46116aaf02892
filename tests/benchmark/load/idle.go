package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"
)

const (
	dialers     = 64
	beatsOffset = 1 // of opaques: 0 is not used
)

// idler is one connection that only sends heartbeats.
type idler struct {
	conn  net.Conn
	frame func(opaque int) []byte

	mutex     sync.Mutex
	sent      time.Time
	waiting   bool
	beats     int
	answered  int
	inTime    int
	notices   int
	latencies *histogram
	failure   error
	closing   bool
}

// stayIdle opens all connections, then keeps them with heartbeats, spread evenly over the interval.
func stayIdle(opts *options, rep *report) error {
	begun, cpu := time.Now(), ownCPU()
	idlers, err := openIdlers(opts)
	defer func() {
		for _, one := range idlers {
			if one != nil {
				one.close()
			}
		}
	}()
	if err != nil {
		return err
	}
	rep.count("connect_ms", int(time.Since(begun).Milliseconds()))
	for i, one := range idlers {
		first := opts.interval * time.Duration(i) / time.Duration(len(idlers))
		go one.keep(first, opts.interval)
	}
	start := time.Now()
	time.Sleep(opts.duration)
	for _, one := range idlers {
		one.stop()
	}
	awaitLast(idlers, opts.timeout)
	collect(idlers, opts, rep)
	rep.Seconds = time.Since(start).Seconds()
	rep.PerSecond = float64(rep.Messages) / rep.Seconds
	rep.CPUSeconds = (ownCPU() - cpu).Seconds()
	return nil
}

// awaitLast gives the last heartbeats the time that they have.
func awaitLast(idlers []*idler, timeout time.Duration) {
	deadline := time.Now().Add(timeout)
	for _, one := range idlers {
		for one.isWaiting() && time.Now().Before(deadline) {
			time.Sleep(5 * time.Millisecond)
		}
	}
}

// openIdlers dials from several goroutines; each connection sends its first heartbeat at once.
func openIdlers(opts *options) ([]*idler, error) {
	idlers, latencies := make([]*idler, opts.connections), newHistogram()
	numbers := make(chan int)
	failures := make(chan error, dialers)
	for range dialers {
		go func() {
			var failed error
			for i := range numbers {
				if failed == nil {
					idlers[i], failed = openIdler(opts, i, latencies)
				}
			}
			failures <- failed
		}()
	}
	for i := range idlers {
		numbers <- i
	}
	close(numbers)
	var failed error
	for range dialers {
		failed = errors.Join(failed, <-failures)
	}
	if failed != nil {
		return idlers, errors.New(firstLine(failed.Error()))
	}
	return idlers, nil
}

func firstLine(text string) string {
	for i := range text {
		if text[i] == '\n' {
			return text[:i]
		}
	}
	return text
}

func openIdler(opts *options, index int, latencies *histogram) (*idler, error) {
	address := opts.namesrv
	if opts.endpoint != "" {
		address = opts.endpoint
	}
	conn, err := connect(address, 20*time.Second)
	if err != nil {
		return nil, err
	}
	group := index
	if opts.groups > 0 {
		group %= opts.groups
	}
	client := fmt.Sprintf("127.0.0.1@%d#%d", os.Getpid(), index)
	name := fmt.Sprintf("%s-%d", opts.group, group)
	one := &idler{conn: conn, latencies: latencies, frame: func(opaque int) []byte { return heartbeat(client, name, opts.topic, opaque) }}
	go one.listen(opts.timeout)
	return one, one.beat()
}

// heartbeat is a HEART_BEAT frame of a push consumer.
func heartbeat(client, group, topic string, opaque int) []byte {
	type object = map[string]any
	body, err := json.Marshal(object{
		"clientID": client, "heartbeatFingerprint": 0, "withoutSub": false, "producerDataSet": []object{},
		"consumerDataSet": []object{{
			"groupName": group, "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING",
			"consumeFromWhere": "CONSUME_FROM_LAST_OFFSET", "unitMode": false,
			"subscriptionDataSet": []object{{
				"topic": topic, "subString": "*", "tagsSet": []string{}, "codeSet": []int{},
				"subVersion": time.Now().UnixMilli(), "expressionType": "TAG", "classFilterMode": false,
			}},
		}},
	})
	if err != nil {
		panic(err) // the values above can be encoded
	}
	return appendFrame(nil, codeBeat, opaque, nil, body)
}

// beat sends one heartbeat unless the last is still open.
func (i *idler) beat() error {
	i.mutex.Lock()
	i.beats++
	if i.waiting || i.failure != nil {
		defer i.mutex.Unlock()
		return i.failure
	}
	opaque := i.beats + beatsOffset
	i.mutex.Unlock()
	wire := i.frame(opaque)
	i.mutex.Lock()
	defer i.mutex.Unlock()
	i.waiting, i.sent = true, time.Now()
	if _, err := i.conn.Write(wire); err != nil {
		i.failure = err
		return err
	}
	return nil
}

// keep sends the heartbeats after the first.
func (i *idler) keep(first, interval time.Duration) {
	time.Sleep(first)
	for !i.stopped() {
		if i.beat() != nil {
			return
		}
		time.Sleep(interval)
	}
}

func (i *idler) stopped() bool {
	i.mutex.Lock()
	defer i.mutex.Unlock()
	return i.closing
}

func (i *idler) isWaiting() bool {
	i.mutex.Lock()
	defer i.mutex.Unlock()
	return i.waiting && i.failure == nil
}

func (i *idler) stop() {
	i.mutex.Lock()
	defer i.mutex.Unlock()
	i.closing = true
}

func (i *idler) close() {
	i.stop()
	i.conn.Close()
}

// listen takes answers and notices until the connection ends.
func (i *idler) listen(timeout time.Duration) {
	reader := newFrameReader(i.conn, 512)
	var f frame
	for {
		err := reader.read(&f)
		now := time.Now()
		i.mutex.Lock()
		switch {
		case err != nil:
			if !i.closing && i.failure == nil {
				i.failure = disconnected(err)
			}
			i.mutex.Unlock()
			return
		case !f.isResponse():
			i.notices++
		case f.code != 0:
			i.failure = errors.New(f.failure("a heartbeat was"))
			i.waiting = false
		default:
			i.answered++
			i.waiting = false
			took := now.Sub(i.sent)
			i.latencies.record(took)
			if took <= timeout {
				i.inTime++
			}
		}
		i.mutex.Unlock()
	}
}

func disconnected(err error) error {
	if errors.Is(err, io.EOF) {
		return errors.New("the server closed an idle connection")
	}
	return err
}

// collect adds up what the connections saw. A heartbeat that was not answered in time is an error.
func collect(idlers []*idler, opts *options, rep *report) {
	var latencies []*histogram
	totals := map[string]int{}
	for _, one := range idlers {
		one.mutex.Lock()
		latencies = append(latencies, one.latencies)
		totals["heartbeats"] += one.beats
		totals["answered"] += one.answered
		totals["in_time"] += one.inTime
		totals["notices"] += one.notices
		late := one.beats - one.inTime
		failure := one.failure
		one.mutex.Unlock()
		switch {
		case failure != nil:
			rep.addError(failure.Error())
		case late > 0:
			rep.addError(fmt.Sprintf("%d heartbeats of a connection were not answered within %v", late, opts.timeout))
		}
	}
	for name, number := range totals {
		rep.count(name, number)
	}
	rep.Messages, rep.AllMessages = int64(totals["answered"]), int64(totals["answered"])
	rep.Latency = merged(latencies...).latency()
}
