package audit

import "time"

// Layer is a part of the work for a request whose time is told of those that were slow.
type Layer int

const (
	Authentication     Layer = iota // who makes it
	Authorization                   // whether they may
	Queue                           // until there was a seat
	MutatingWebhooks                // one after the other
	ValidatingWebhooks              // all at once
	Store                           // reads and writes
	Answer                          // to a client who may take it slowly

	layers = iota
)

// annotations are how upstream's servers call the layers.
var annotations = [layers]string{
	Authentication:     "apiserver.latency.k8s.io/authentication",
	Authorization:      "apiserver.latency.k8s.io/authorization",
	Queue:              "apiserver.latency.k8s.io/apf-queue-wait",
	MutatingWebhooks:   "apiserver.latency.k8s.io/mutating-webhook",
	ValidatingWebhooks: "apiserver.latency.k8s.io/validating-webhook",
	Store:              "apiserver.latency.k8s.io/etcd",
	Answer:             "apiserver.latency.k8s.io/response-write",
}

// slow is a request that took longer.
const slow = 500 * time.Millisecond

// Spent adds to the time of a layer. It may be called at any time before the end, by any goroutine.
func (r *Request) Spent(l Layer, took time.Duration) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.spent[l] += took
}

// annotateSlow notes, of a request that was slow, how long it took, and which layer how long of it.
func (r *Request) annotateSlow() {
	r.mu.Lock()
	total, spent := time.Since(r.mu.event.RequestReceivedTimestamp.Time), r.mu.spent
	r.mu.Unlock()
	if total <= slow {
		return
	}
	r.Annotate("apiserver.latency.k8s.io/total", total.String())
	for l, took := range spent {
		if took > 0 {
			r.Annotate(annotations[l], took.String())
		}
	}
}
