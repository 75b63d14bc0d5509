package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// Limits of events. What is more is dropped: an event is a courtesy, the log has it all.
const (
	eventsQueued = 16
	eventsBurst  = 10
	eventsEvery  = time.Minute // after the burst
	// The same event is not posted again before.
	eventAgain = 10 * time.Minute
	// After an error that may mend itself, from the one to the other.
	minEventPause = 2 * time.Second
	maxEventPause = time.Minute
	// postTimeout is for one request; the API server itself gives up after a minute.
	postTimeout = time.Minute
)

// controller is who posts the events.
const controller = "sluice"

// Event is what `kubectl describe` and `kubectl get events` show about an object. kube-proxy posts
// "Starting" about its Node, and warnings.
type Event struct {
	// Regarding is the object; the zero value is this node's Node.
	Regarding corev1.ObjectReference
	// Type is corev1.EventTypeNormal or corev1.EventTypeWarning.
	Type string
	// Reason is one word in UpperCamelCase, like Starting.
	Reason string
	// Action is what was done, one word in UpperCamelCase.
	Action string
	// Note is a sentence; it may be empty.
	Note string
}

// queuedEvent is an event and when it happened.
type queuedEvent struct {
	Event
	at time.Time
}

// poster posts events, one after the other. The ClusterRole system:node-proxier
// allows to create them in the group events.k8s.io.
type poster struct {
	node  string
	log   *slog.Logger
	queue chan queuedEvent
	limit *rate.Limiter
	last  map[Event]time.Time // what was posted lately
}

func newPoster(log *slog.Logger) *poster {
	return &poster{
		log: log, queue: make(chan queuedEvent, eventsQueued),
		limit: rate.NewLimiter(rate.Every(eventsEvery), eventsBurst), last: map[Event]time.Time{},
	}
}

// post queues an event; it never waits.
func (p *poster) post(e Event) {
	select {
	case p.queue <- queuedEvent{e, time.Now()}:
	default:
		p.log.Debug("too many events; one is dropped", "reason", e.Reason, "note", e.Note)
	}
}

// run posts what is queued until ctx ends.
func (p *poster) run(ctx context.Context, c *client) {
	for {
		select {
		case <-ctx.Done():
			return
		case e := <-p.queue:
			if p.allowed(e) {
				p.deliver(ctx, c, e)
			}
		}
	}
}

// allowed keeps to the limits.
func (p *poster) allowed(e queuedEvent) bool {
	for other, at := range p.last {
		if e.at.Sub(at) >= eventAgain {
			delete(p.last, other)
		}
	}
	if _, again := p.last[e.Event]; again || !p.limit.Allow() {
		return false
	}
	p.last[e.Event] = e.at
	return true
}

// deliver tries until the server has taken or refused the event.
func (p *poster) deliver(ctx context.Context, c *client, e queuedEvent) {
	for pause := minEventPause; ; pause = min(2*pause, maxEventPause) {
		err := p.send(ctx, c, e)
		switch {
		case err == nil:
			return
		case !isUnreachable(err) && !retriable(err):
			p.log.Debug("the API server refuses an event", "reason", e.Reason, "note", e.Note, "error", err)
			return
		}
		if sleep(ctx, pause) != nil {
			return
		}
	}
}

// retriable tells whether the server may take later what it refuses now.
func retriable(err error) bool {
	status, ok := err.(apierrors.APIStatus)
	return ok && (status.Status().Code >= 500 || apierrors.IsTooManyRequests(err) || apierrors.IsUnauthorized(err))
}

func (p *poster) send(ctx context.Context, c *client, e queuedEvent) error {
	if e.Regarding == (corev1.ObjectReference{}) {
		// The name as UID is what kubelet gives, and what kubectl describe looks for.
		e.Regarding = corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: p.node, UID: types.UID(p.node)}
	}
	namespace := e.Regarding.Namespace
	if namespace == "" {
		namespace = metav1.NamespaceDefault // where events about objects without a namespace belong
	}
	body, err := json.Marshal(&eventsv1.Event{
		TypeMeta: metav1.TypeMeta{APIVersion: eventsv1.SchemeGroupVersion.String(), Kind: "Event"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: fmt.Sprintf("%s.%x", e.Regarding.Name, e.at.UnixNano()),
		},
		EventTime:           metav1.NewMicroTime(e.at),
		ReportingController: controller,
		ReportingInstance:   controller + "-" + p.node,
		Action:              e.Action, Reason: e.Reason, Regarding: e.Regarding, Note: e.Note, Type: e.Type,
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, postTimeout)
	defer cancel()
	return c.rest.Post().AbsPath("/apis/events.k8s.io/v1/namespaces/"+namespace+"/events").MaxRetries(0).
		SetHeader("Content-Type", runtime.ContentTypeJSON).Body(body).Do(ctx).Error()
}
