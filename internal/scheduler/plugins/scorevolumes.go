package plugins

import (
	"math"

	corev1 "k8s.io/api/core/v1"
	configv1 "k8s.io/kube-scheduler/config/v1"

	"github.com/kemudi/kemudi/internal/api/core/claims"
	"github.com/kemudi/kemudi/internal/scheduler/snapshot"
)

// EmptiestVolumes rates a node the higher, the less of its storage would be used.
func EmptiestVolumes() []configv1.UtilizationShapePoint {
	return []configv1.UtilizationShapePoint{{Utilization: 0, Score: 10}, {Utilization: 100, Score: 0}}
}

// filling is how much of what there is of a class the claims of a pod would take on a node.
type filling struct {
	class       string
	asked, size int64
}

// Score rates nodes by how far the claims that wait fill the volumes that they would get
// there, or, if all are to be made, what their drivers have left (KEP-4049).
func (p *volumeBinding) Score(c *Cycle, nodes []*snapshot.Node, scores []int64) bool {
	if len(p.waiting) == 0 {
		return false
	}
	for i, n := range nodes {
		fillings := p.picked(n)
		if len(fillings) == 0 {
			fillings = p.toBeMade(c.Snapshot, n)
		}
		var sum int64
		for _, f := range fillings {
			sum += p.rate(f.asked, f.size)
		}
		if len(fillings) > 0 {
			scores[i] = int64(math.Round(float64(sum) / float64(len(fillings))))
		}
	}
	return true
}

// picked is how far the volumes would be filled that are there.
func (p *volumeBinding) picked(n *snapshot.Node) (all []filling) {
	var taken []*snapshot.Volume
	for i := range p.waiting {
		w := &p.waiting[i]
		v := w.pick(n, taken)
		if v == nil {
			continue
		}
		taken = append(taken, v)
		f := of(&all, claims.VolumeClass(v.Obj))
		size := v.Obj.Spec.Capacity[corev1.ResourceStorage]
		f.asked, f.size = f.asked+w.size.Value(), f.size+size.Value()
	}
	return all
}

// toBeMade is how far drivers that tell what they have left would be filled.
func (p *volumeBinding) toBeMade(s *snapshot.Snapshot, n *snapshot.Node) (all []filling) {
	for i := range p.waiting {
		w := &p.waiting[i]
		sc := s.StorageClass(claims.Class(w.claim))
		if sc == nil || !s.Measured(sc) {
			continue
		}
		if left, ok := s.Space(sc, w.size, n); ok {
			f := of(&all, sc.Name)
			f.asked, f.size = f.asked+w.size.Value(), left
		}
	}
	return all
}

// of is the filling of a class, which is added if there is none.
func of(all *[]filling, class string) *filling {
	for i := range *all {
		if (*all)[i].class == class {
			return &(*all)[i]
		}
	}
	*all = append(*all, filling{class: class})
	return &(*all)[len(*all)-1]
}
