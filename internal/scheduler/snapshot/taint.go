package snapshot

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
)

// Taints is the taints of nodes, one value for all nodes that have the same.
type Taints struct {
	Repelling []corev1.Taint // NoSchedule and NoExecute
	Avoided   []corev1.Taint // PreferNoSchedule
}

// taintsOf returns nil for no taints.
func (s *Snapshot) taintsOf(taints []corev1.Taint) *Taints {
	if len(taints) == 0 {
		return nil
	}
	var b strings.Builder
	for i := range taints {
		b.WriteString(taints[i].ToString() + ",")
	}
	t := s.taints[b.String()]
	if t == nil {
		t = &Taints{}
		for _, x := range taints {
			if x.Effect == corev1.TaintEffectPreferNoSchedule {
				t.Avoided = append(t.Avoided, x)
			} else {
				t.Repelling = append(t.Repelling, x)
			}
		}
		s.taints[b.String()] = t
	}
	return t
}

// AnyTaints reports whether nodes have taints, or had some not long ago.
func (s *Snapshot) AnyTaints() bool { return len(s.taints) > 0 }

// toleratedTaints is what a pod makes of one set of taints.
type toleratedTaints struct {
	taints    *Taints
	tolerated bool
	avoided   int64
}

// Tolerates reports whether all repelling taints of a node are tolerated, and
// how many of the others are not.
func (c *Constraints) Tolerates(n *Node) (ok bool, avoided int64) {
	if n.Taints == nil {
		return true, 0
	}
	for i := range c.tolerated {
		if r := &c.tolerated[i]; r.taints == n.Taints {
			return r.tolerated, r.avoided
		}
	}
	r := toleratedTaints{taints: n.Taints, tolerated: true}
	for i := range n.Taints.Repelling {
		r.tolerated = r.tolerated && c.ToleratesTaint(&n.Taints.Repelling[i])
	}
	for i := range n.Taints.Avoided {
		if !c.ToleratesTaint(&n.Taints.Avoided[i]) {
			r.avoided++
		}
	}
	c.tolerated = append(c.tolerated, r)
	return r.tolerated, r.avoided
}

// ToleratesTaint reports whether one taint is tolerated.
func (c *Constraints) ToleratesTaint(t *corev1.Taint) bool {
	for i := range c.Tolerations {
		if c.Tolerations[i].ToleratesTaint(klog.Logger{}, t, true) {
			return true
		}
	}
	return false
}
