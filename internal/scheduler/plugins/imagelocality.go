package plugins

import (
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/kemudi/kemudi/internal/scheduler/snapshot"
)

// Sizes in bytes between which images that are present make a difference.
const (
	smallImages     = 23 * 1024 * 1024   // all of a pod's images
	largeImagesEach = 1000 * 1024 * 1024 // per container
)

// imageLocality prefers nodes that have the pod's images already, the more so
// the larger they are; an image that few nodes have counts for less, so that
// pods do not heap up there.
type imageLocality struct{}

func (*imageLocality) Name() string { return "ImageLocality" }

func (p *imageLocality) Score(c *Cycle, nodes []*snapshot.Node, scores []int64) bool {
	spec := &c.Pod.Obj.Spec
	known := false
	note := func(containers []corev1.Container) {
		for i := range containers {
			img := c.Snapshot.Image(imageName(containers[i].Image))
			if img == nil {
				continue
			}
			known = true
			share := float64(img.Nodes) / float64(c.Snapshot.Len())
			worth := int64(float64(img.Size) * share)
			for j, n := range nodes {
				if img.On(n) {
					scores[j] += worth
				}
			}
		}
	}
	note(spec.InitContainers)
	note(spec.Containers)
	if !known {
		return false
	}
	large := int64(largeImagesEach) * int64(len(spec.InitContainers)+len(spec.Containers))
	for i, s := range scores {
		s = min(max(s, smallImages), large)
		scores[i] = MaxScore * (s - smallImages) / (large - smallImages)
	}
	return true
}

// imageName adds the tag that is meant when there is none, as nodes report it.
func imageName(name string) string {
	if strings.LastIndexByte(name, ':') <= strings.LastIndexByte(name, '/') {
		return name + ":latest"
	}
	return name
}
