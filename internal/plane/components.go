package plane

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/resource"
)

// components make the ComponentStatuses: a source of the API server. Controllers and
// scheduler are parts of this process, and so as well as it is.
type components struct{ p *Plane }

// componentTimeout is for how long the store may take to answer.
const componentTimeout = 5 * time.Second

// One is how a component is.
func (c components) One(ctx context.Context, _, name string) (resource.Object, error) {
	for _, s := range c.look(ctx) {
		if s.GetName() == name {
			return s, nil
		}
	}
	return nil, apierrors.NewNotFound(core.ComponentStatuses.GroupResource(), name)
}

// All is how all components are. They have no labels.
func (c components) All(ctx context.Context, _ string, selected labels.Selector) ([]resource.Object, error) {
	if !selected.Matches(labels.Set{}) {
		return nil, nil
	}
	return c.look(ctx), nil
}

func (c components) look(ctx context.Context) []resource.Object {
	ctx, cancel := context.WithTimeout(ctx, componentTimeout)
	defer cancel()
	_, _, err := c.p.o.Store.Get(ctx, "/registry/health")
	return []resource.Object{component("controller-manager", nil), component("etcd-0", err), component("scheduler", nil)}
}

func component(name string, err error) *corev1.ComponentStatus {
	c := corev1.ComponentCondition{Type: corev1.ComponentHealthy, Status: corev1.ConditionTrue, Message: "ok"}
	if err != nil {
		c = corev1.ComponentCondition{Type: corev1.ComponentHealthy, Status: corev1.ConditionFalse, Message: err.Error()}
	}
	return &corev1.ComponentStatus{ObjectMeta: metav1.ObjectMeta{Name: name}, Conditions: []corev1.ComponentCondition{c}}
}
