package kube

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/semaphore"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice/agent/source"
)

const (
	// batchSize bounds how many changes are handed over in one go, and how many wait for it.
	batchSize = 100
	// maxQueued bounds what waits and what is being handed over, in bytes of memory. A larger
	// object goes alone.
	maxQueued = 1 << 20
	// inMemory is how many bytes of memory an object takes at most for each byte of its encoding: measured were 3 for a Service
	// of many ports, and 4 to 7 for an EndpointSlice of many endpoints.
	inMemory = 8
)

// outbox hands changes to a sink, in their order. A change that comes alone goes
// at once; those that come while the sink is busy go together.
//
// It outlives who puts changes in: room that is taken and not given back is lost until the agent ends.
type outbox struct {
	sink  source.Sink
	items chan outgoing
	room  *semaphore.Weighted
	// It is a problem when a change waits for longer than patience.
	problems *problems
	patience time.Duration
}

// outgoing is a change, or the question whether everything before it was handed over.
type outgoing struct {
	change source.Change
	weight int64           // of the change, in the outbox's room
	handed chan<- struct{} // not nil: the question; closed as the answer
}

func newOutbox(sink source.Sink, p *problems, patience time.Duration) *outbox {
	return &outbox{
		sink: sink, items: make(chan outgoing, batchSize), room: semaphore.NewWeighted(maxQueued),
		problems: p, patience: patience,
	}
}

// weigh tells how many bytes of memory an object takes, about; what is more than all the room, as all of it.
func weigh(obj metav1.Object) int64 {
	sized, ok := obj.(interface{ Size() int }) // of generated.pb.go: of the encoding
	if !ok {
		return 0 // nil: the object is gone
	}
	return min(int64(sized.Size())*inMemory, maxQueued)
}

// put queues a change. It waits while the queue is full.
func (o *outbox) put(ctx context.Context, c source.Change) error {
	item := outgoing{change: c, weight: weigh(c.Object)}
	return o.patiently(c.Kind, func() error {
		if err := o.room.Acquire(ctx, item.weight); err != nil {
			return err
		}
		err := o.send(ctx, item)
		if err != nil {
			o.room.Release(item.weight) // nobody else will: it is not in the queue
		}
		return err
	})
}

// replace tells the sink what exists of a kind, after it has accepted all that was put before.
func (o *outbox) replace(ctx context.Context, kind source.Kind, exist map[source.Name]struct{}) error {
	if err := o.flush(ctx, kind); err != nil {
		return err
	}
	return o.patiently(kind, func() error { return o.sink.Replace(ctx, kind, exist) })
}

// flush returns when the sink has accepted what was put before.
func (o *outbox) flush(ctx context.Context, kind source.Kind) error {
	return o.patiently(kind, func() error {
		handed := make(chan struct{})
		if err := o.send(ctx, outgoing{handed: handed}); err != nil {
			return err
		}
		select {
		case <-handed:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
}

// patiently calls wait. While that takes too long it is a problem, which the log and the status show.
func (o *outbox) patiently(kind source.Kind, wait func() error) error {
	holder, told := string(kind)+" hand-over", make(chan struct{})
	late := time.AfterFunc(o.patience, func() {
		defer close(told)
		o.problems.failed(holder, fault{"hand-over", "agent", string(kind), fmt.Sprintf(
			"what the API server sent has waited for %v and is not taken over: the agent is busy with the rules, or hangs; "+
				"if this stays, restart sluice and report it as a bug, with the log", o.patience)})
	})
	err := wait()
	if !late.Stop() {
		<-told // or works could come first
		o.problems.works(holder)
	}
	return err
}

func (o *outbox) send(ctx context.Context, item outgoing) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case o.items <- item:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// run hands over until ctx ends or the sink does not accept any more, which is the error.
func (o *outbox) run(ctx context.Context) error {
	for {
		var first outgoing
		select {
		case <-ctx.Done():
			return ctx.Err()
		case first = <-o.items:
		}
		batch, weight, question := o.collect(first)
		var err error
		if len(batch) > 0 {
			err = o.sink.Apply(ctx, batch)
		}
		o.room.Release(weight)
		if err != nil {
			return fmt.Errorf("hand over what the API server sent: %w", err)
		}
		if question != nil {
			close(question)
		}
	}
}

// collect takes what waits behind first, up to a question or a full batch.
func (o *outbox) collect(first outgoing) (batch []source.Change, weight int64, question chan<- struct{}) {
	if first.handed != nil {
		return nil, 0, first.handed
	}
	batch = append(make([]source.Change, 0, min(1+len(o.items), batchSize)), first.change)
	weight = first.weight
	for len(batch) < batchSize {
		select {
		case item := <-o.items:
			if item.handed != nil {
				return batch, weight, item.handed
			}
			batch, weight = append(batch, item.change), weight+item.weight
		default:
			return batch, weight, nil
		}
	}
	return batch, weight, nil
}
