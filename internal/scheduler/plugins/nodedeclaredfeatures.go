package plugins

import (
	"fmt"

	utilversion "k8s.io/apimachinery/pkg/util/version"
	declared "k8s.io/component-helpers/nodedeclaredfeatures"
	declaredtypes "k8s.io/component-helpers/nodedeclaredfeatures/types"

	"github.com/kemudi/kemudi/internal/scheduler/snapshot"
	"github.com/kemudi/kemudi/internal/version"
)

// nodeDeclaredFeatures refuses nodes that do not say that they can do what the pod's spec
// asks for, where that is more than every node agent can (KEP-5328).
type nodeDeclaredFeatures struct {
	refused *Reason
	ours    *utilversion.Version
	needs   declared.FeatureSet // of the pod at hand
}

func newNodeDeclaredFeatures(i int) *nodeDeclaredFeatures {
	return &nodeDeclaredFeatures{
		refused: lasting(i, "node(s) didn't match Pod's required features"),
		ours:    utilversion.MustParseSemantic(version.Kubernetes),
	}
}

func (*nodeDeclaredFeatures) Name() string { return "NodeDeclaredFeatures" }

func (p *nodeDeclaredFeatures) PreFilter(c *Cycle) PreFilterResult {
	needs, err := declared.DefaultFramework.InferForPodScheduling(&declaredtypes.PodInfo{Spec: &c.Pod.Obj.Spec}, p.ours)
	if err != nil {
		return PreFilterResult{Reject: &Reason{Err: fmt.Errorf("infer what the pod needs of its node: %w", err)}}
	}
	p.needs = needs
	return PreFilterResult{Skip: needs.IsEmpty()}
}

func (p *nodeDeclaredFeatures) Filter(_ *Cycle, n *snapshot.Node) *Reason {
	if p.needs.IsEmpty() {
		return nil
	}
	if match, err := declared.DefaultFramework.MatchNode(p.needs, n.Obj); err != nil || !match.IsMatch {
		return p.refused
	}
	return nil
}

func (*nodeDeclaredFeatures) Wakers() Events { return NodeAdded | NodeFeatures }
