package plugins

import (
	"strings"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/kemudi/kemudi/internal/scheduler/snapshot"
)

// countedNodes is the nodes whose pods a spread constraint counts: those with
// all the labels and, as its policies say, those that the pod could go to by node
// affinity and taints.
func countedNodes(c *Cycle, sp *snapshot.Spread, labelKeys []string) *snapshot.NodeSet {
	own := c.Pod.Constraints
	required := own.Required
	if !sp.HonorAffinity {
		required = nil
	}
	var key strings.Builder
	key.WriteString("spread " + strings.Join(labelKeys, ","))
	if required != nil {
		key.WriteString(" affinity " + required.Key)
	}
	if sp.HonorTaints {
		key.WriteString(" tolerations " + own.TolerationsKey)
	}
	honorTaints := sp.HonorTaints
	return c.Snapshot.NodeSet(key.String(), func(n *snapshot.Node) bool {
		for _, k := range labelKeys {
			if _, ok := n.Obj.Labels[k]; !ok {
				return false
			}
		}
		if required != nil && !required.Matches(n) {
			return false
		}
		if honorTaints {
			if ok, _ := own.Tolerates(n); !ok {
				return false
			}
		}
		return true
	})
}

func labelSet(c *Cycle) labels.Set { return c.Pod.Obj.Labels }
