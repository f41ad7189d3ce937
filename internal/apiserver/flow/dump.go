package flow

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// table is one of the tables by which upstream shows its queues.
type table struct {
	head []string
	rows [][]string
}

func (t *table) add(row ...any) {
	var list []string
	for _, v := range row {
		list = append(list, fmt.Sprint(v))
	}
	t.rows = append(t.rows, list)
}

func (t *table) write(to io.Writer) error {
	w := tabwriter.NewWriter(to, 8, 0, 1, ' ', 0)
	for _, row := range append([][]string{t.head}, t.rows...) {
		if _, err := fmt.Fprintln(w, strings.Join(row, ",\t")); err != nil {
			return err
		}
	}
	return w.Flush()
}

// DumpLevels writes a line for each level.
func (c *Control) DumpLevels(w io.Writer) error {
	t := table{head: []string{
		"PriorityLevelName", "ActiveQueues", "IsIdle", "IsQuiescing", "WaitingRequests", "ExecutingRequests", "DispatchedRequests", "RejectedRequests", "TimedoutRequests", "CancelledRequests",
	}}
	c.mu.Lock()
	levels := slices.SortedFunc(slices.Values(c.mu.levels), byLevelName)
	active, leaving := map[string]int{}, map[string]bool{}
	for _, l := range levels {
		leaving[l.name] = l.leaving
		for _, q := range l.queues {
			if len(q.line) > 0 {
				active[l.name]++
			}
		}
	}
	c.mu.Unlock()
	for _, l := range levels {
		n := c.metrics.sum(l.name)
		idle := n.waiting == 0 && n.running == 0
		t.add(l.name, active[l.name], idle, leaving[l.name], n.waiting, n.running, n.dispatched, n.refusals[0]+n.refusals[1], n.refusals[2], n.refusals[3])
	}
	return t.write(w)
}

// DumpQueues writes a line for each queue.
func (c *Control) DumpQueues(w io.Writer) error {
	t := table{head: []string{"PriorityLevelName", "Index", "PendingRequests", "ExecutingRequests", "SeatsInUse", "NextDispatchR", "InitialSeatsSum", "MaxSeatsSum", "TotalWorkSum"}}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, l := range slices.SortedFunc(slices.Values(c.mu.levels), byLevelName) {
		for i := range l.count {
			q := l.queues[i]
			if q == nil {
				q = &queue{}
			}
			seats := 0
			for _, p := range q.line {
				seats += p.seats
			}
			t.add(l.name, i, len(q.line), q.running, q.seats, seatSeconds(q.served), seats, seats, seatSeconds(float64(seats)*l.average))
		}
	}
	return t.write(w)
}

// DumpRequests writes a line for each request that waits; details also says what it is.
func (c *Control) DumpRequests(w io.Writer, details bool) error {
	t := table{head: []string{"PriorityLevelName", "FlowSchemaName", "QueueIndex", "RequestIndexInQueue", "FlowDistingsher", "ArriveTime", "InitialSeats", "FinalSeats", "AdditionalLatency", "StartTime"}}
	if details {
		t.head = append(t.head, "UserName", "Verb", "APIPath", "Namespace", "Name", "APIVersion", "Resource", "SubResource")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, l := range slices.SortedFunc(slices.Values(c.mu.levels), byLevelName) {
		for _, at := range slices.Sorted(maps.Keys(l.queues)) {
			for i, p := range l.queues[at].line {
				r, s := &p.about, p.flow.schema
				t.add(l.name, s.name, at, i, s.distinguisher(r), p.came.UTC().Format(time.RFC3339Nano), p.seats, 0, "0s", time.Time{}.Format(time.RFC3339Nano))
				if details {
					row := &t.rows[len(t.rows)-1]
					*row = append(*row, r.User.GetName(), r.Verb, r.Path, r.Namespace, r.Name, strings.TrimPrefix(r.Group+"/"+r.Version, "/"), r.Plural, r.Sub)
				}
			}
		}
	}
	return t.write(w)
}

func byLevelName(a, b *level) int { return cmp.Compare(a.name, b.name) }

// seatSeconds is what work is measured in.
func seatSeconds(n float64) string { return strconv.FormatFloat(n, 'f', 8, 64) + "ss" }
