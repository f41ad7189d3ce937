package snapshot

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// Image is where an image is present already.
type Image struct {
	Size  int64 // bytes, as the last node said
	Nodes int   // on how many nodes it is
	on    []bool
}

// On reports whether a node has the image.
func (i *Image) On(n *Node) bool { return int(n.slot) < len(i.on) && i.on[n.slot] }

// Image returns the image with the name, or nil if no node has it.
func (s *Snapshot) Image(name string) *Image { return s.images[name] }

func (s *Snapshot) setImages(n *Node, obj *corev1.Node) {
	if n.Obj != nil {
		if slices.EqualFunc(n.Obj.Status.Images, obj.Status.Images, func(a, b corev1.ContainerImage) bool {
			return a.SizeBytes == b.SizeBytes && slices.Equal(a.Names, b.Names)
		}) {
			return
		}
		s.dropImages(n)
	}
	for _, ci := range obj.Status.Images {
		for _, name := range ci.Names {
			i := s.images[name]
			if i == nil {
				i = &Image{}
				s.images[name] = i
			}
			i.Size = ci.SizeBytes
			for int(n.slot) >= len(i.on) {
				i.on = append(i.on, false)
			}
			if !i.on[n.slot] {
				i.on[n.slot] = true
				i.Nodes++
			}
		}
	}
}

func (s *Snapshot) dropImages(n *Node) {
	for _, ci := range n.Obj.Status.Images {
		for _, name := range ci.Names {
			i := s.images[name]
			if i == nil || !i.On(n) {
				continue
			}
			i.on[n.slot] = false
			i.Nodes--
			if i.Nodes == 0 {
				delete(s.images, name)
			}
		}
	}
}
