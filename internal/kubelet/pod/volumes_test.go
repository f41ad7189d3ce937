package pod

import (
	"errors"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/kubelet/container"
	"github.com/kemudi/kemudi/internal/kubelet/volume"
	"github.com/kemudi/kemudi/internal/resource"
)

// told is what events say, each with the name of its object.
type told []string

func (t *told) Event(o resource.Object, kind, reason, message string) {
	*t = append(*t, o.GetName()+" "+kind+" "+reason+": "+message)
}

func TestAVolumeWithAnotherFileSystemIsToldOfItself(t *testing.T) {
	t.Parallel()
	var events told
	s := &Set{Options: Options{Runner: container.New(container.Runner{Events: &events})}}
	pv := &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "disk"}}
	s.reportFormat(pv, &volume.MountError{Volume: "disk", Err: &volume.FormatError{Err: errors.New("mount failed: exit status 32")}})
	s.reportFormat(pv, &volume.MountError{Volume: "disk", Err: errors.New("it is not there")})
	want := []string{`disk Warning FailedMountOnFilesystemMismatch: MountVolume failed for volume "disk" mount failed: exit status 32`}
	if !slices.Equal(events, want) {
		t.Errorf("events: got\n%q, want\n%q", events, want)
	}
}
