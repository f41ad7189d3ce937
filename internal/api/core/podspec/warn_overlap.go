package podspec

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// ports warns of ports that several containers, or one of them twice, say they have.
func (w *warner) ports(at string, s *corev1.PodSpec) {
	type place struct {
		container string // initContainers[0]
		index     int
		*corev1.ContainerPort
	}
	path := func(p place) string { return fmt.Sprintf("%sspec.%s.ports[%d]", at, p.container, p.index) }
	var all []place
	for _, list := range [...]struct {
		name       string
		containers []corev1.Container
	}{{"initContainers", s.InitContainers}, {"containers", s.Containers}} {
		for i := range list.containers {
			for j := range list.containers[i].Ports {
				p := place{fmt.Sprintf("%s[%d]", list.name, i), j, &list.containers[i].Ports[j]}
				if p.HostIP != "" && p.HostPort == 0 {
					w.Add("%s: hostIP set without hostPort: %+v", path(p), *p.ContainerPort)
				}
				for _, other := range all {
					if how := clash(p.ContainerPort, other.ContainerPort); how != "" {
						w.Add("%s: %s port definition with %s", path(p), how, path(other))
					}
				}
				all = append(all, p)
			}
		}
	}
}

// clash is upstream's word for what two ports have to do with each other; empty: nothing.
func clash(a, b *corev1.ContainerPort) string {
	switch {
	case a.ContainerPort != b.ContainerPort, a.Protocol != b.Protocol:
		return ""
	case a.HostIP == b.HostIP && a.HostPort == b.HostPort:
		return "duplicate"
	case a.HostPort == 0, b.HostPort == 0: // odd, and not dangerous
		return "overlapping"
	case a.HostPort == b.HostPort && (a.HostIP == "") != (b.HostIP == ""): // who gets connections to that address is not said
		return "dangerously ambiguous"
	}
	return ""
}

// paths warns of files of a volume that are where another file is, or below it.
func (w *warner) paths(v *corev1.Volume) {
	switch {
	case v.ConfigMap != nil:
		w.overlaps(fmt.Sprintf("volume %q (ConfigMap %q)", v.Name, v.ConfigMap.Name), keyPaths(v.ConfigMap.Items))
	case v.Secret != nil:
		w.overlaps(fmt.Sprintf("volume %q (Secret %q)", v.Name, v.Secret.SecretName), keyPaths(v.Secret.Items))
	case v.DownwardAPI != nil:
		w.overlaps(fmt.Sprintf("volume %q (DownwardAPI)", v.Name), fieldPaths(v.DownwardAPI.Items))
	case v.Projected != nil:
		w.projected(v)
	}
}

// projected does so for a volume of several sources.
func (w *warner) projected(v *corev1.Volume) {
	var before []string // paths of the sources before
	for i := range v.Projected.Sources {
		var paths []string
		var what string
		switch s := &v.Projected.Sources[i]; {
		case *s == (corev1.VolumeProjection{}):
			w.Add("volume %q (Projected) has no sources provided", v.Name)
		case s.ConfigMap != nil:
			what, paths = fmt.Sprintf("ConfigMap %q", s.ConfigMap.Name), keyPaths(s.ConfigMap.Items)
		case s.Secret != nil:
			what, paths = fmt.Sprintf("Secret %q", s.Secret.Name), keyPaths(s.Secret.Items)
		case s.DownwardAPI != nil:
			what, paths = "DownwardAPI", fieldPaths(s.DownwardAPI.Items)
		case s.ServiceAccountToken != nil:
			what, paths = "ServiceAccountToken", []string{s.ServiceAccountToken.Path}
		case s.ClusterTrustBundle != nil:
			name := s.ClusterTrustBundle.Name
			if name == nil {
				name = s.ClusterTrustBundle.SignerName
			}
			if name != nil {
				what, paths = fmt.Sprintf("ClusterTrustBundle %q", *name), []string{s.ClusterTrustBundle.Path}
			}
		}
		w.overlaps(fmt.Sprintf("volume %q (Projected %s)", v.Name, what), paths, before...)
		before = append(before, paths...)
	}
}

// overlaps warns of paths that lie on or below each other, or others that were before.
func (w *warner) overlaps(volume string, paths []string, before ...string) {
	for i, path := range paths {
		path = strings.TrimRight(path, "/")
		for _, others := range [...][]string{before, paths[:i]} {
			for _, other := range others {
				other = strings.TrimRight(other, "/")
				if path != "" && other != "" && (strings.HasPrefix(path+"/", other+"/") || strings.HasPrefix(other+"/", path+"/")) {
					w.Add("%s: overlapping paths: %q with %q", volume, path, other)
				}
			}
		}
	}
}

func keyPaths(items []corev1.KeyToPath) (paths []string) {
	for i := range items {
		paths = append(paths, items[i].Path)
	}
	return paths
}

func fieldPaths(items []corev1.DownwardAPIVolumeFile) (paths []string) {
	for i := range items {
		paths = append(paths, items[i].Path)
	}
	return paths
}
