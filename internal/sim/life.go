package sim

import (
	"math/rand/v2"
	"os"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/task"
)

// Life is a random life of a control plane that is killed and started again. What there is
// beside it, nodes and people, is the test's to play.
type Life struct {
	*testing.T
	Rng   *rand.Rand
	Plane *Mortal
}

// Lives plays n random lives, each in a bubble and with a seed of its own as by Seeds, and returns
// when all are over. One may be quiet, but in some the control plane has to have been killed.
func Lives(t *testing.T, n int, play func(l *Life)) {
	t.Helper()
	var killed atomic.Int64
	t.Run("seeds", func(t *testing.T) {
		Seeds(t, n, func(t *testing.T, rng *rand.Rand) {
			synctest.Test(t, func(t *testing.T) {
				l := &Life{T: t, Rng: rng, Plane: NewMortal(t, rng)}
				play(l)
				killed.Add(int64(l.Plane.Kills))
			})
		})
	})
	if killed.Load() == 0 && !Replays() {
		t.Error("the control plane was never killed: nothing was tested")
	}
}

// Replays says that KEMUDI_SEED asks for one seed alone, in which anything may be missing.
func Replays() bool { return os.Getenv("KEMUDI_SEED") != "" }

// Sleep lets time pass, as far as the test is concerned.
func (l *Life) Sleep(d time.Duration) {
	l.Helper()
	if err := task.Sleep(l.Context(), d); err != nil {
		l.Fatal(err)
	}
}

// Mind fails the test for an error that is not of a race with what is tested.
func (l *Life) Mind(err error) {
	l.Helper()
	if err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
		l.Fatal(err)
	}
}

// Pods are those of the namespace default.
func (l *Life) Pods() []*corev1.Pod {
	l.Helper()
	all, err := client.For(l.Plane.Admin(), core.Pods).List(l.Context(), metav1.NamespaceDefault, metav1.ListOptions{})
	if err != nil {
		l.Fatal(err)
	}
	return all
}
