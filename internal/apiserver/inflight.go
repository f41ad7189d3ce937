package apiserver

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kemudi/kemudi/internal/apiserver/budget"
	"github.com/kemudi/kemudi/internal/apiserver/flow"
	"github.com/kemudi/kemudi/internal/apiserver/refusal"
	"github.com/kemudi/kemudi/internal/apiserver/timeouts"
	"github.com/kemudi/kemudi/internal/audit"
)

// What a request takes of memory while it runs, at least.
const (
	memoryOfList  = 3 << 20 // two buffers, and what is on its way to a slow client
	memoryOfOther = 64 << 10
	// A body is there as bytes, as an object, and as other bytes on their way to the disk.
	memoryPerByte = 8
)

// withBody reads the request's body, as soon as it is known that the request may
// be made and before it takes a place: a client may be as slow as it likes, up to
// the request's deadline, and holds nothing but what it has sent. Those that may
// not be made, which anybody can send, never get here.
func (s *Server) withBody(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		st := stateOf(r)
		of := partyOf(st.user)
		st.memory = budget.Reservation{Budget: s.memory, Flow: of.name, System: of.system}
		defer st.memory.Give()
		if r.ContentLength != 0 && !st.info.Passes() {
			var err error
			st.body, err = s.readBody(w, r)
			if err == nil || errors.Is(err, timeouts.ErrTime) {
				st.unread = 0 // all has been read, or will not be
			}
			switch {
			case errors.Is(err, timeouts.ErrNoMemory):
				s.tooMany(w, r)
				return
			case err != nil:
				s.writeError(w, r, bodyError(err, s.o.MaxBody))
				return
			}
			s.sized(st)
		}
		next.ServeHTTP(w, r)
	})
}

func (s *Server) readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	st := stateOf(r)
	if st.info.LongRunning() { // it may go on for as long as it likes once it has begun
		ctx, cancel := context.WithTimeout(r.Context(), s.o.RequestTimeout)
		defer cancel()
		r = r.WithContext(ctx)
	}
	return timeouts.Body{Most: s.o.MaxBody, Pay: st.memory.Take}.Read(w, r)
}

// withInflight bounds how many requests run at one time, as flow schemas and priority levels
// say. What is long-running is not counted; of a watch its beginning is. Nobody may use up the
// memory.
func (s *Server) withInflight(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		st := stateOf(r)
		if long := st.info.LongRunning(); !long || st.info.Verb == "watch" {
			about := flow.Request{
				User: st.user, Resource: st.info.Resource, Verb: st.info.Verb, Group: st.info.Group, Plural: st.info.Plural, Sub: st.info.Sub,
				Namespace: st.info.Namespace, Path: st.info.Path, Version: st.info.Version, Name: st.info.Name,
			}
			f := s.flows.Classify(&about)
			tellFlow(w, f)
			seats := 1
			if !f.Exempt() {
				seats = s.seatsFor(r)
			}
			began := time.Now()
			held, refused := s.flows.Acquire(r.Context(), f, seats, &about)
			st.audit.Spent(audit.Queue, time.Since(began))
			if refused != "" {
				s.tooMany(w, r)
				return
			}
			st.seat = seat{flows: s.flows, held: held, gauge: s.metrics.reading, early: long}
			if isWrite(r.Method) {
				st.seat.gauge = s.metrics.writing
			}
			st.seat.gauge.Inc()
			defer st.seat.give()
		}
		switch ok := st.memory.Take(s.memoryFor(r)); {
		case !ok && r.Method != http.MethodDelete: // what is deleted makes room
			s.tooMany(w, r)
			return
		case st.info.LongRunning():
			st.memory.Give() // what it keeps is soon measured
		}
		next.ServeHTTP(w, r)
	})
}

// tooMany refuses a request that there is no room for.
func (s *Server) tooMany(w http.ResponseWriter, r *http.Request) {
	s.metrics.dropped.WithLabelValues(inflightKind(r)).Inc()
	stateOf(r).terminated = true
	w.Header().Set("Retry-After", "1")
	http.Error(w, "Too many requests, please try again later.", http.StatusTooManyRequests)
}

// memoryFor is about how many bytes it takes to answer a request, whose body has
// come, beside those that hold the body.
func (s *Server) memoryFor(r *http.Request) int64 {
	switch st := stateOf(r); {
	case !st.info.Resource:
		return 0 // health, above all, is told for as long as possible
	case st.info.Verb == "list":
		return memoryOfList
	default:
		return memoryOfOther + memoryPerByte*int64(len(st.body))
	}
}

func inflightKind(r *http.Request) string {
	if isWrite(r.Method) {
		return "mutating"
	}
	return "readOnly"
}

func isWrite(method string) bool {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
		return false
	}
	return true
}

// partyOf is whose share of memory and connections a user's requests take. Who upstream's
// levels exempt, system, node-high, leader-election and workload-high are for is of the
// system here: without nodes, controllers and add-ons there is no cluster.
func partyOf(u user.Info) party {
	name := u.GetName()
	switch name {
	case user.APIServerUser, user.KubeControllerManager, user.KubeScheduler, user.KubeProxy:
		return party{name, true}
	}
	system := strings.HasPrefix(name, serviceaccount.ServiceAccountUsernamePrefix+metav1.NamespaceSystem+":") ||
		slices.ContainsFunc(u.GetGroups(), func(g string) bool { return g == user.SystemPrivilegedGroup || g == user.NodesGroup })
	return party{name, system}
}

// party is a user, who keeps the cluster going or not.
type party struct {
	name   string
	system bool
}

// bodyError is why a request's body was not read.
func bodyError(err error, limit int64) error {
	switch {
	case errors.Is(err, timeouts.ErrTooLarge):
		return apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("limit is %d", limit))
	case errors.Is(err, timeouts.ErrTime):
		return apierrors.NewTimeoutError("request did not complete within the allotted timeout", 0)
	}
	return refusal.BadRequest("read request body: %v", err)
}
