package client

import (
	"fmt"
	"time"

	"github.com/google/uuid"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/lru"
)

// Limits of what a correlator remembers and lets pass, as upstream's.
const (
	recorderMemory = 4096             // different events, groups and objects remembered
	similarMost    = 9                // so many messages of one reason are told apart ...
	similarWindow  = 10 * time.Minute // ... until nothing like them happened for so long
	objectBurst    = 25               // events of a component about one object at once ...
	objectRefill   = 5 * time.Minute  // ... and one more each so often
)

// similarPrefix begins the message that stands for many.
const similarPrefix = "(combined from similar events): "

// correlator turns notes into events: repetitions are counted, many messages
// of one reason become one event, and an object that is noted too often is held
// back. It is used by one goroutine.
type correlator struct {
	groups *lru.Cache // groupKey: *group
	seen   *lru.Cache // eventKey: *observed
	budget *lru.Cache // objectKey: *bucket
	named  int64      // the last name given has this time in it
}

func newCorrelator() *correlator {
	return &correlator{groups: lru.New(recorderMemory), seen: lru.New(recorderMemory), budget: lru.New(recorderMemory)}
}

// objectKey is what a budget is for: one component's events about an object.
type objectKey struct {
	component             string
	apiVersion, kind      string
	namespace, name, part string // part is empty except in an eventKey
	uid                   types.UID
}

// groupKey is what messages of are told apart, as long as they are few.
type groupKey struct {
	objectKey
	kind, reason string
}

// eventKey is what makes two notes the same event.
type eventKey struct {
	groupKey
	message string // empty: the one that stands for many
}

type group struct {
	messages map[string]bool
	last     time.Time
}

// observed is an event that was noted before.
type observed struct {
	name  string
	first time.Time
	count int32
}

// bucket holds an object's right to further events.
type bucket struct {
	left   float64
	filled time.Time
}

// planned is an event to be written; again says that it was written before.
type planned struct {
	*corev1.Event
	again bool
	o     *observed
}

// event is what is to be written for a note; ok is false if nothing is.
func (c *correlator) event(n *note, host string) (p planned, ok bool) {
	g := groupKey{objectKey{
		component: n.component, apiVersion: n.about.APIVersion, kind: n.about.Kind,
		namespace: n.about.Namespace, name: n.about.Name, uid: n.about.UID,
	}, n.kind, n.reason}
	e := newEvent(n, host)
	key := eventKey{groupKey: g}
	if c.tooManySimilar(g, n) {
		e.Message = cut(similarPrefix + n.message)
	} else {
		key.part, key.message = n.about.FieldPath, n.message
	}
	p = planned{Event: e}
	if old, found := c.seen.Get(key); found {
		p.o, p.again = old.(*observed), true
	} else {
		p.o = &observed{first: n.at}
		c.name(p)
		c.seen.Add(key, p.o)
	}
	p.o.count++
	e.Name, e.FirstTimestamp, e.Count = p.o.name, metav1.NewTime(p.o.first), p.o.count
	return p, c.allow(g.objectKey, n.at)
}

// name gives an event a name that this correlator has not given before: that of
// its object with the time, as upstream. Not every object's name can begin that
// of an event: the names of roles may have colons, and long ones leave no room.
func (c *correlator) name(p planned) {
	c.named = max(c.named+1, p.o.first.UnixNano())
	p.o.name = fmt.Sprintf("%s.%x", p.InvolvedObject.Name, c.named)
	if len(validation.NameIsDNSSubdomain(p.o.name, false)) > 0 {
		p.o.name = uuid.NewString()
	}
	p.Name = p.o.name
}

// tooManySimilar notes the message and says that it is one of too many.
func (c *correlator) tooManySimilar(key groupKey, n *note) bool {
	var g *group
	if old, found := c.groups.Get(key); found {
		g = old.(*group)
	}
	if g == nil || n.at.Sub(g.last) > similarWindow {
		g = &group{messages: map[string]bool{}}
		c.groups.Add(key, g)
	}
	g.last = n.at
	if !g.messages[n.message] {
		if len(g.messages) >= similarMost {
			return true
		}
		g.messages[n.message] = true
	}
	return false
}

// allow takes one event from the object's budget.
func (c *correlator) allow(key objectKey, now time.Time) bool {
	var b *bucket
	if old, found := c.budget.Get(key); found {
		b = old.(*bucket)
	} else {
		b = &bucket{left: objectBurst, filled: now}
		c.budget.Add(key, b)
	}
	b.left = min(objectBurst, b.left+now.Sub(b.filled).Seconds()/objectRefill.Seconds())
	b.filled = now
	if b.left < 1 {
		return false
	}
	b.left--
	return true
}
