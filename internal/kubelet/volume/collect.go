package volume

import (
	"context"
	"encoding/pem"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
)

// file is what a written volume holds at one path.
type file struct {
	data []byte
	mode int32
	uid  *int64 // owner; nil: root
}

// writer collects the content of one written volume.
type writer struct {
	ctx    context.Context
	m      *Manager
	pod    *v1.Pod
	volume *v1.Volume
	src    Sources

	files  map[string]file
	memory bool // the content must not reach a disk
	again  time.Time
}

const defaultMode int32 = 0o644

func modeOr(m *int32, fallback int32) int32 {
	if m != nil {
		return *m
	}
	return fallback
}

func (w *writer) collect() error {
	v := w.volume
	switch {
	case v.ConfigMap != nil:
		return w.configMap(v.ConfigMap.Name, v.ConfigMap.Items, modeOr(v.ConfigMap.DefaultMode, defaultMode), v.ConfigMap.Optional)
	case v.Secret != nil:
		w.memory = true
		return w.secret(v.Secret.SecretName, v.Secret.Items, modeOr(v.Secret.DefaultMode, defaultMode), v.Secret.Optional)
	case v.DownwardAPI != nil:
		w.memory = true
		return w.downward(v.DownwardAPI.Items, modeOr(v.DownwardAPI.DefaultMode, defaultMode))
	case v.Projected != nil:
		w.memory = true
		for i := range v.Projected.Sources {
			if err := w.projection(i, modeOr(v.Projected.DefaultMode, defaultMode)); err != nil {
				return err
			}
		}
		return nil
	}
	return fmt.Errorf("volumes of this kind are not supported by this node")
}

// projection adds the number-th source of a projected volume.
func (w *writer) projection(number int, mode int32) error {
	s := &w.volume.Projected.Sources[number]
	switch {
	case s.ConfigMap != nil:
		return w.configMap(s.ConfigMap.Name, s.ConfigMap.Items, mode, s.ConfigMap.Optional)
	case s.Secret != nil:
		return w.secret(s.Secret.Name, s.Secret.Items, mode, s.Secret.Optional)
	case s.DownwardAPI != nil:
		return w.downward(s.DownwardAPI.Items, mode)
	case s.ServiceAccountToken != nil:
		return w.serviceAccountToken(s.ServiceAccountToken, mode)
	case s.ClusterTrustBundle != nil:
		return w.trustBundle(s.ClusterTrustBundle, mode)
	case s.PodCertificate != nil:
		return w.podCertificate(number, s.PodCertificate, mode)
	}
	return fmt.Errorf("a source of the projected volume is of a kind that this node does not support")
}

func isTrue(b *bool) bool { return b != nil && *b }

func (w *writer) configMap(name string, items []v1.KeyToPath, mode int32, optional *bool) error {
	cm, err := w.src.ConfigMap(w.pod.Namespace, name)
	if err != nil {
		if isTrue(optional) && w.src.IsMissing(err) {
			return nil
		}
		return err
	}
	data := map[string][]byte{}
	for k, v := range cm.Data {
		data[k] = []byte(v)
	}
	maps.Copy(data, cm.BinaryData)
	return w.keys(data, selection{items, mode, isTrue(optional), "configmap references non-existent config key"})
}

func (w *writer) secret(name string, items []v1.KeyToPath, mode int32, optional *bool) error {
	s, err := w.src.Secret(w.pod.Namespace, name)
	if err != nil {
		if isTrue(optional) && w.src.IsMissing(err) {
			return nil
		}
		return err
	}
	return w.keys(s.Data, selection{items, mode, isTrue(optional), "references non-existent secret key"})
}

// selection says which keys of an object become files.
type selection struct {
	items    []v1.KeyToPath // empty: all, under their own names
	mode     int32
	optional bool
	missing  string // what to say if there is no such key
}

// keys adds data by key, or the items only at the paths they name.
func (w *writer) keys(data map[string][]byte, s selection) error {
	if len(s.items) == 0 {
		for k, v := range data {
			if err := w.add(k, file{data: v, mode: s.mode}); err != nil {
				return err
			}
		}
		return nil
	}
	for _, it := range s.items {
		v, ok := data[it.Key]
		if !ok {
			if s.optional {
				continue
			}
			return fmt.Errorf("%s: %s", s.missing, it.Key)
		}
		if err := w.add(it.Path, file{data: v, mode: modeOr(it.Mode, s.mode)}); err != nil {
			return err
		}
	}
	return nil
}

func (w *writer) downward(items []v1.DownwardAPIVolumeFile, mode int32) error {
	for _, it := range items {
		var value string
		var err error
		switch {
		case it.FieldRef != nil:
			value, err = w.src.Field(w.pod, it.FieldRef.FieldPath)
		case it.ResourceFieldRef != nil:
			value, err = w.src.ResourceField(w.pod, it.ResourceFieldRef)
		}
		if err != nil {
			return err
		}
		if err := w.add(it.Path, file{data: []byte(value), mode: modeOr(it.Mode, mode)}); err != nil {
			return err
		}
	}
	return nil
}

// serviceAccountToken adds a token.
func (w *writer) serviceAccountToken(p *v1.ServiceAccountTokenProjection, mode int32) error {
	t, err := w.m.token(w.ctx, w.pod, w.volume.Name, p, w.src)
	if err != nil {
		return err
	}
	w.again = Sooner(w.again, t.renew())
	return w.add(p.Path, w.guarded([]byte(t.Value), mode))
}

// trustBundle adds the certificates of bundles, each once. Their order is their own, so that
// the file stays as it is when those of the bundles are in another.
func (w *writer) trustBundle(p *v1.ClusterTrustBundleProjection, mode int32) error {
	bundles, err := w.src.TrustBundles(p)
	if err != nil && !(isTrue(p.Optional) && w.src.IsMissing(err)) {
		return err
	}
	certificates := map[string]bool{}
	for _, b := range bundles {
		for block, rest := pem.Decode([]byte(b.Spec.TrustBundle)); block != nil; block, rest = pem.Decode(rest) {
			certificates[string(block.Bytes)] = true
		}
	}
	var data []byte
	for _, c := range slices.Sorted(maps.Keys(certificates)) {
		data = append(data, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte(c)})...)
	}
	return w.add(p.Path, w.guarded(data, mode))
}

// guarded is a file that as few as possible may read: the one user of all containers and
// the pod's group, if there are any.
func (w *writer) guarded(data []byte, mode int32) file {
	f := file{data: data, mode: mode, uid: commonUser(w.pod)}
	if f.uid != nil || FSGroup(w.pod) != nil {
		f.mode = 0o600 // and the group, if there is one, may read
	}
	return f
}

// commonUser is the user that all containers are told to run as, or nil.
func commonUser(pod *v1.Pod) *int64 {
	var common *int64
	if sc := pod.Spec.SecurityContext; sc != nil {
		common = sc.RunAsUser
	}
	var found *int64
	for i, c := range slices.Concat(pod.Spec.Containers, pod.Spec.InitContainers) {
		user := common
		if c.SecurityContext != nil && c.SecurityContext.RunAsUser != nil {
			user = c.SecurityContext.RunAsUser
		}
		if user == nil || i > 0 && *user != *found {
			return nil
		}
		found = user
	}
	return found
}

// add puts a file at a path in the volume, which must stay in it (V4).
func (w *writer) add(name string, f file) error {
	clean := path.Clean(name)
	if name == "" || path.IsAbs(name) || clean == "." || clean == ".." || strings.HasPrefix(clean, "../") || strings.HasPrefix(clean, "..") {
		return fmt.Errorf("invalid path %q: must be relative and must not start with '..'", name)
	}
	w.files[clean] = f
	return nil
}
