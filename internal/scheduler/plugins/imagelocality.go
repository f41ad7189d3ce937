package plugins

import (
	"iter"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/kemudi/kemudi/internal/scheduler/snapshot"
)

// Sizes in bytes between which images that are present make a difference.
const (
	smallImages     = 23 * 1024 * 1024   // all of a pod's images
	largeImagesEach = 1000 * 1024 * 1024 // per container, and per volume that is an image
)

// imageLocality prefers nodes that have the pod's images already, the more so
// the larger they are; an image that few nodes have counts for less, so that
// pods do not heap up there.
type imageLocality struct{}

func (*imageLocality) Name() string { return "ImageLocality" }

func (p *imageLocality) Score(c *Cycle, nodes []*snapshot.Node, scores []int64) bool {
	known, images := false, 0
	for name := range imagesOf(&c.Pod.Obj.Spec) {
		images++
		img := c.Snapshot.Image(imageName(name))
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
	if !known {
		return false
	}
	large := int64(largeImagesEach) * int64(images)
	for i, s := range scores {
		s = min(max(s, smallImages), large)
		scores[i] = MaxScore * (s - smallImages) / (large - smallImages)
	}
	return true
}

// imagesOf are the images of a pod's containers and volumes.
func imagesOf(spec *corev1.PodSpec) iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, containers := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
			for i := range containers {
				if !yield(containers[i].Image) {
					return
				}
			}
		}
		for i := range spec.Volumes {
			if v := spec.Volumes[i].Image; v != nil && !yield(v.Reference) {
				return
			}
		}
	}
}

// imageName adds the tag that is meant when there is none, as nodes report it.
func imageName(name string) string {
	if strings.LastIndexByte(name, ':') <= strings.LastIndexByte(name, '/') {
		return name + ":latest"
	}
	return name
}
