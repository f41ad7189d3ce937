package volume

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/kubelet/san"
	"github.com/kemudi/kemudi/internal/wholefile"
)

// Inline is a disk of a network that stands in a pod itself, as the persistent volume that it would be; nil for all others.
func Inline(v *v1.Volume, namespace string) *v1.PersistentVolume {
	pv := &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: v.Name}}
	switch s := v.ISCSI; {
	case s != nil:
		pv.Spec.ISCSI = &v1.ISCSIPersistentVolumeSource{
			TargetPortal: s.TargetPortal, IQN: s.IQN, Lun: s.Lun, ISCSIInterface: s.ISCSIInterface, FSType: s.FSType, ReadOnly: s.ReadOnly, Portals: s.Portals,
			DiscoveryCHAPAuth: s.DiscoveryCHAPAuth, SessionCHAPAuth: s.SessionCHAPAuth, InitiatorName: s.InitiatorName,
		}
		if s.SecretRef != nil {
			pv.Spec.ISCSI.SecretRef = &v1.SecretReference{Name: s.SecretRef.Name, Namespace: namespace}
		}
	case v.FC != nil:
		pv.Spec.FC = v.FC
	default:
		return nil
	}
	return pv
}

// diskPlace is where a disk of a network is for all pods.
func (m *Manager) diskPlace(pv *v1.PersistentVolume) string {
	name := san.Of(pv).Name()
	if !isDevice(pv) {
		return m.sharedAt(name)
	}
	kind, rest, _ := strings.Cut(name, "/")
	return m.sharedAt(kind, bareDir, rest)
}

// diskOf is a disk of a network, to be put at its place.
func (m *Manager) diskOf(pod *v1.Pod, pv *v1.PersistentVolume, at string, src Sources) *shared {
	disk := san.Of(pv)
	s := &shared{at: at, target: disk.Target(), options: pv.Spec.MountOptions}
	if s.readOnly = isReadOnlyDisk(pv); pv.Spec.ISCSI != nil {
		s.fsType = pv.Spec.ISCSI.FSType
	} else {
		s.fsType = pv.Spec.FC.FSType
	}
	s.attach = func(ctx context.Context) (string, error) {
		device, err := m.attach(ctx, disk, at, func() (map[string]string, error) { return chap(pod, pv, src) })
		if err != nil {
			step := "MountVolume.WaitForAttach"
			if isDevice(pv) {
				step = "MapVolume.WaitForAttach"
			}
			err = &MountError{Step: step, Volume: pv.Name, Device: isDevice(pv), Err: err}
		}
		return device, err
	}
	return s
}

// isReadOnlyDisk reports whether a volume is a disk of a network to which nobody may write.
func isReadOnlyDisk(pv *v1.PersistentVolume) bool {
	return pv.Spec.ISCSI != nil && pv.Spec.ISCSI.ReadOnly || pv.Spec.FC != nil && pv.Spec.FC.ReadOnly
}

// chap is what the machine shows to the portals of a disk.
func chap(pod *v1.Pod, pv *v1.PersistentVolume, src Sources) (map[string]string, error) {
	s := pv.Spec.ISCSI
	if s == nil || s.SecretRef == nil || !s.DiscoveryCHAPAuth && !s.SessionCHAPAuth {
		return nil, nil
	}
	namespace := cmp.Or(s.SecretRef.Namespace, pod.Namespace)
	secret, err := src.Secret(namespace, s.SecretRef.Name)
	if err != nil {
		return nil, fmt.Errorf("failed to get secret from [%q/%q]: %w", namespace, s.SecretRef.Name, err)
	}
	out := map[string]string{}
	for name, value := range secret.Data {
		out[name] = string(value)
	}
	return out, nil
}

func record(at string) string { return at + ".json" }

// attach writes down that a disk is attached for a place, and attaches it.
func (m *Manager) attach(ctx context.Context, disk *san.Disk, at string, secrets func() (map[string]string, error)) (string, error) {
	shown, err := secrets()
	if err != nil {
		return "", err
	}
	data, err := json.Marshal(disk)
	if err != nil {
		return "", fmt.Errorf("write down disk: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(at), 0o750); err != nil {
		return "", fmt.Errorf("make directory of disks: %w", err)
	}
	if err := wholefile.Write(record(at), data, 0o600); err != nil {
		return "", fmt.Errorf("write down disk: %w", err)
	}
	return m.san.Attach(ctx, disk, shown)
}

// diskAt is the disk that was attached for a place; nil: none was.
func diskAt(at string) (*san.Disk, error) {
	data, err := os.ReadFile(record(at))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	disk := &san.Disk{}
	if err == nil {
		err = json.Unmarshal(data, disk)
	}
	if err == nil && !disk.Valid() {
		err = errors.New("it names no disk")
	}
	if err != nil {
		return nil, fmt.Errorf("read which disk is attached: %w", err)
	}
	return disk, nil
}

// attached is a disk, and the place for which it is attached.
type attached struct {
	at   string
	disk *san.Disk
}

// attachedBelow are the disks that are attached, by a directory of plugins.
func attachedBelow(plugins string) (all []attached, _ error) {
	for _, pattern := range []string{"iscsi/*/*", "iscsi/" + bareDir + "/*/*", "fc/*", "fc/" + bareDir + "/*"} {
		records, err := filepath.Glob(record(filepath.Join(plugins, pattern)))
		if err != nil {
			return nil, fmt.Errorf("look for disks: %w", err)
		}
		for _, path := range records {
			at := strings.TrimSuffix(path, record(""))
			disk, err := diskAt(at)
			if err != nil {
				return nil, err
			}
			if disk != nil {
				all = append(all, attached{at, disk})
			}
		}
	}
	return all, nil
}

// detach takes the disk of a place away that no pod has any more.
func (m *Manager) detach(ctx context.Context, disk *san.Disk, at string) error {
	all, err := attachedBelow(m.sharedAt())
	if err != nil {
		return err
	}
	var others []*san.Disk
	for _, other := range all {
		if other.at != at {
			others = append(others, other.disk)
		}
	}
	return end(ctx, m.san, attached{at, disk}, others)
}

// end takes a disk away but for what others need of it, and then what says that it is attached.
func end(ctx context.Context, machine san.Machine, a attached, others []*san.Disk) error {
	if err := machine.Detach(ctx, a.disk, others); err != nil {
		return err
	}
	if err := os.Remove(record(a.at)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("forget disk: %w", err)
	}
	return nil
}

// detachAll takes away the disks that a node agent had that is gone.
func detachAll(ctx context.Context, root string, machine san.Machine) (removed []string, _ error) {
	all, err := attachedBelow(pluginsOf(root))
	if err != nil {
		return nil, err
	}
	for _, a := range all {
		if err := end(ctx, machine, a, nil); err != nil {
			return removed, err
		}
		removed = append(removed, "disk "+a.disk.Name())
	}
	return removed, nil
}
