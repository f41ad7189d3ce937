package persistentvolume

import (
	"cmp"
	"fmt"
	"os"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"
)

// Options say how volumes of policy Recycle are emptied.
type Options struct{ HostPath, NFS Recycler }

// Recycler is the pod that empties volumes of a kind.
type Recycler struct {
	// Template is the file of a pod that empties its first volume, which is set to the one to be emptied; empty: it is upstream's pod.
	Template string
	// Least is how many seconds it has, and PerGiB how many for each GiB of the volume, if that is more. 0: as many as
	// upstream's.
	Least, PerGiB int64
}

// Defaults are upstream's.
func Defaults() Options {
	return Options{HostPath: Recycler{Least: 60, PerGiB: 30}, NFS: Recycler{Least: 300, PerGiB: 30}}
}

// Check says what is wrong with the options.
func (o Options) Check() error {
	for _, r := range []Recycler{o.HostPath, o.NFS} {
		if _, err := r.pod(); err != nil {
			return err
		}
	}
	return nil
}

// pod is the pod as its file has it now.
func (r Recycler) pod() (*corev1.Pod, error) {
	if r.Template == "" {
		return scrub(), nil
	}
	text, err := os.ReadFile(r.Template)
	if err != nil {
		return nil, fmt.Errorf("read pod that empties volumes: %w", err)
	}
	p := &corev1.Pod{}
	if err := yaml.UnmarshalStrict(text, p); err != nil {
		return nil, fmt.Errorf("read pod that empties volumes from %s: %w", r.Template, err)
	}
	if len(p.Spec.Volumes) == 0 {
		return nil, fmt.Errorf("read pod that empties volumes from %s: does not contain any volumes", r.Template)
	}
	return p, nil
}

// recycler is the pod that empties a volume; nil: nobody can.
func (o *Options) recycler(v *corev1.PersistentVolume) (*corev1.Pod, error) {
	var r, usual Recycler
	var source corev1.VolumeSource
	switch {
	case v.Spec.HostPath != nil:
		r, usual = o.HostPath, Defaults().HostPath
		source.HostPath = &corev1.HostPathVolumeSource{Path: v.Spec.HostPath.Path}
	case v.Spec.NFS != nil:
		r, usual = o.NFS, Defaults().NFS
		source.NFS = &corev1.NFSVolumeSource{Server: v.Spec.NFS.Server, Path: v.Spec.NFS.Path}
	default:
		return nil, nil
	}
	p, err := r.pod()
	if err != nil {
		return nil, err
	}
	p.Name, p.GenerateName = recycler+v.Name, ""
	if p.Namespace == "" {
		p.Namespace = metav1.NamespaceDefault
	}
	p.Spec.Volumes[0].VolumeSource = source
	size := v.Spec.Capacity[corev1.ResourceStorage]
	p.Spec.ActiveDeadlineSeconds = ptr.To(max(cmp.Or(r.Least, usual.Least), size.Value()>>30*cmp.Or(r.PerGiB, usual.PerGiB)))
	return p, nil
}

// scrub is upstream's pod that empties its volume.
func scrub() *corev1.Pod {
	return &corev1.Pod{Spec: corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyNever,
		Volumes:       []corev1.Volume{{Name: "vol"}},
		Containers: []corev1.Container{{
			Name:         "pv-recycler",
			Image:        "registry.k8s.io/build-image/debian-base:bookworm-v1.0.4",
			Command:      []string{"/bin/sh"},
			Args:         []string{"-c", `test -e /scrub && find /scrub -mindepth 1 -delete && test -z "$(ls -A /scrub)" || exit 1`},
			VolumeMounts: []corev1.VolumeMount{{Name: "vol", MountPath: "/scrub"}},
		}},
	}}
}
