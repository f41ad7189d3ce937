package apiserver

import (
	"net/http"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kemudi/kemudi/internal/apiserver/flow"
)

// What a list takes of the seats of its level.
const (
	objectsPerSeat = 100
	maxListSeats   = 10
)

// seat is what a request has while it runs.
type seat struct {
	flows *flow.Control
	held  flow.Held
	gauge prometheus.Gauge // that counts it; nil: it has none, or has given it back
	early bool             // it gives it back when its answer begins
}

func (s *seat) give() {
	if s.gauge != nil {
		s.gauge.Dec()
		s.gauge = nil
		s.flows.Release(&s.held)
	}
}

// seatsFor is how many seats a request takes: one, and a list one for each hundred objects that it
// looks at.
func (s *Server) seatsFor(r *http.Request) int {
	in := stateOf(r).info
	switch {
	case !in.Resource || in.Verb != "list" && in.Verb != "watch",
		in.Verb == "watch" && !strings.Contains(r.URL.RawQuery, "sendInitialEvents=true"),
		strings.Contains(r.URL.RawQuery, "fieldSelector=metadata.name"):
		return 1
	}
	res := s.routes.Load().lookup(in.Group, in.Version, in.Plural)
	if res == nil || !res.Def.Stored() {
		return 1
	}
	objects := s.o.Caches.Cache(res.Def).Len()
	if objects > objectsPerSeat && strings.Contains(r.URL.RawQuery, "limit=") && !strings.Contains(r.URL.RawQuery, "Selector=") {
		if limit, err := strconv.Atoi(r.URL.Query().Get("limit")); err == nil && limit > 0 {
			objects = min(objects, limit)
		}
	}
	return max(1, min((objects+objectsPerSeat-1)/objectsPerSeat, maxListSeats))
}

// tellFlow says in an answer which FlowSchema has taken the request, and of which level it is.
func tellFlow(w http.ResponseWriter, f flow.Flow) {
	header := w.Header()
	if uid := f.Schema(); uid != nil {
		header["X-Kubernetes-Pf-Flowschema-Uid"] = uid
	}
	if uid := f.Level(); uid != nil {
		header["X-Kubernetes-Pf-Prioritylevel-Uid"] = uid
	}
}
