package plugins

import (
	"slices"
	"strings"

	configv1 "k8s.io/kube-scheduler/config/v1"

	"github.com/kemudi/kemudi/internal/scheduler/snapshot"
)

// nodeResourcesFit refuses nodes that have not enough of a resource left, and
// prefers those that would have the most CPU and memory left, unless it is told
// another strategy.
type nodeResourcesFit struct {
	plugin  int
	reasons map[shortage]*Reason
	scoring *resourceScore  // nil: the mean of what is left of CPU and memory
	ignored map[string]bool // resources, and groups of them, that are not looked at; nil: none
	last    struct {        // neighbours often lack the same
		short  shortage
		reason *Reason
	}
}

// shortage is what there is not enough of: bit 0 is the number of pods, bit r+1
// is resource r.
type shortage struct {
	bits  uint64
	final bool
}

func newNodeResourcesFit(i int, args *configv1.NodeResourcesFitArgs) *nodeResourcesFit {
	p := &nodeResourcesFit{plugin: i, reasons: map[shortage]*Reason{}}
	if args == nil {
		return p
	}
	p.scoring = newResourceScore(args.ScoringStrategy)
	for _, name := range slices.Concat(args.IgnoredResources, args.IgnoredResourceGroups) {
		if p.ignored == nil {
			p.ignored = map[string]bool{}
		}
		p.ignored[name] = true
	}
	return p
}

func (*nodeResourcesFit) Name() string { return "NodeResourcesFit" }

func (p *nodeResourcesFit) Filter(c *Cycle, n *snapshot.Node) *Reason {
	if int64(len(n.Pods)) >= n.AllowedPods {
		return p.refuse(c, n)
	}
	for _, need := range c.Pod.Requests {
		if need.Value > n.Free(need.Resource) && !p.ignores(c, need.Resource) && !byDevices(c, n, need.Resource) {
			return p.refuse(c, n)
		}
	}
	return nil
}

// ignores reports whether a resource is not to be looked at. It is asked for each node
// that lacks something, and so small enough to be inlined.
func (p *nodeResourcesFit) ignores(c *Cycle, resource int) bool {
	return p.ignored != nil && p.told(c, resource)
}

// byDevices reports whether it is devices that serve a resource on a node: DynamicResources
// sees to that. Like ignores it is small enough to be inlined.
func byDevices(c *Cycle, n *snapshot.Node, resource int) bool {
	return resource > snapshot.EphemeralStorage && !n.Has(resource) && c.Snapshot.ServedByDevices(resource) != nil
}

// told reports whether the arguments name a resource. Only extended ones can be ignored.
func (p *nodeResourcesFit) told(c *Cycle, resource int) bool {
	if resource <= snapshot.EphemeralStorage {
		return false
	}
	name := string(c.Snapshot.ResourceName(resource))
	group, _, extended := strings.Cut(name, "/")
	return extended && (p.ignored[name] || p.ignored[group])
}

// refuse says of what there is not enough. No pod can have what the node never
// had.
func (p *nodeResourcesFit) refuse(c *Cycle, n *snapshot.Node) *Reason {
	var short shortage
	if int64(len(n.Pods)) >= n.AllowedPods {
		short.bits = 1
	}
	for _, need := range c.Pod.Requests {
		if need.Value > n.Free(need.Resource) && !p.ignores(c, need.Resource) && !byDevices(c, n, need.Resource) {
			short.bits |= 1 << min(need.Resource+1, 63)
			short.final = short.final || need.Resource >= len(n.Allocatable) || need.Value > n.Allocatable[need.Resource]
		}
	}
	if p.last.reason != nil && p.last.short == short {
		return p.last.reason
	}
	r := p.reasons[short]
	if r == nil {
		r = &Reason{Texts: p.texts(c, n), Final: short.final, Plugin: p.plugin}
		if short.bits < 1<<63 { // resources beyond share a bit
			p.reasons[short] = r
		}
	}
	if short.bits < 1<<63 {
		p.last.short, p.last.reason = short, r
	}
	return r
}

func (p *nodeResourcesFit) texts(c *Cycle, n *snapshot.Node) (texts []string) {
	if int64(len(n.Pods)) >= n.AllowedPods {
		texts = append(texts, "Too many pods")
	}
	for _, need := range c.Pod.Requests {
		if need.Value > n.Free(need.Resource) && !p.ignores(c, need.Resource) && !byDevices(c, n, need.Resource) {
			texts = append(texts, p.insufficient(c, need.Resource))
		}
	}
	return texts
}

func (p *nodeResourcesFit) insufficient(c *Cycle, resource int) string {
	switch resource {
	case snapshot.CPU:
		return "Insufficient cpu"
	case snapshot.Memory:
		return "Insufficient memory"
	case snapshot.EphemeralStorage:
		return "Insufficient ephemeral-storage"
	}
	return "Insufficient " + string(c.Snapshot.ResourceName(resource))
}

func (p *nodeResourcesFit) Score(c *Cycle, nodes []*snapshot.Node, scores []int64) bool {
	if p.scoring != nil {
		p.scoring.score(c, nodes, scores)
		return true
	}
	for i, n := range nodes {
		var sum, resources int64
		for r := range n.Scored {
			if r >= len(n.Allocatable) || n.Allocatable[r] == 0 {
				continue
			}
			resources++
			if left := n.Allocatable[r] - n.Scored[r] - c.Pod.Scored[r]; left > 0 {
				sum += left * MaxScore / n.Allocatable[r]
			}
		}
		if resources > 0 {
			scores[i] = sum / resources
		}
	}
	return true
}

// Shared: pods of a shape ask the same of a node.
func (*nodeResourcesFit) Shared() Scope { return Scope{Filter: true, Score: true} }

func (*nodeResourcesFit) Wakers() Events {
	return NodeAdded | NodeAllocatable | PodRemoved | DeviceClassChanged
}

func (p *nodeResourcesFit) Hint(c *Cycle, e *Event) bool { return mightPass(c, e, p) }
