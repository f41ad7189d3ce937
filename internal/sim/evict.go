package sim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/client"
)

// evict asks for the eviction of one pod.
func evict(ctx context.Context, r *run, args []string) error {
	o, rest, err := objectArg(args)
	if err != nil || o.def != core.Pods.Def || o.name == "" {
		return errors.Join(err, errArgs)
	}
	options := &metav1.DeleteOptions{}
	for _, arg := range rest {
		key, value, _ := strings.Cut(arg, "=")
		switch key {
		case "grace":
			n, err := strconv.ParseInt(value, 10, 64)
			if err != nil {
				return errArgs
			}
			options.GracePeriodSeconds = &n
		case "dry-run":
			options.DryRun = []string{metav1.DryRunAll}
		default:
			return errArgs
		}
	}
	if err := r.evict(ctx, o, options); err != nil {
		return errors.New(outcome(err))
	}
	r.stdout = outcome(nil) + "\n"
	return nil
}

func (r *run) evict(ctx context.Context, o object, options *metav1.DeleteOptions) error {
	_, err := client.For(r.c.API(), core.Pods).Post(ctx, o.namespace, o.name, "eviction", &policyv1.Eviction{
		ObjectMeta: metav1.ObjectMeta{Namespace: o.namespace, Name: o.name}, DeleteOptions: options,
	})
	return err
}

// outcome is what became of an eviction.
func outcome(err error) string {
	var refused apierrors.APIStatus
	switch {
	case err == nil:
		return "evicted"
	case errors.As(err, &refused) && refused.Status().Details != nil && len(refused.Status().Details.Causes) > 0:
		return fmt.Sprintf("refused: %d %s", refused.Status().Code, refused.Status().Details.Causes[0].Message)
	case errors.As(err, &refused):
		return fmt.Sprintf("refused: %d %s", refused.Status().Code, refused.Status().Message)
	}
	return fmt.Sprintf("failed: %v", err)
}

// drain does one round of what kubectl drain does again and again.
func drain(ctx context.Context, r *run, args []string) error {
	if len(args) != 1 {
		return errArgs
	}
	cordon := client.Patch{Type: types.MergePatchType, Data: []byte(`{"spec":{"unschedulable":true}}`)}
	if _, err := client.For(r.c.API(), core.Nodes).Patch(ctx, "", args[0], "", cordon); err != nil {
		return err
	}
	pods, err := client.For(r.c.API(), core.Pods).List(ctx, "", metav1.ListOptions{FieldSelector: "spec.nodeName=" + args[0]})
	if err != nil {
		return err
	}
	slices.SortStableFunc(pods, func(a, b *corev1.Pod) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	var b strings.Builder
	for _, p := range pods {
		if p.DeletionTimestamp == nil {
			fmt.Fprintf(&b, "%s %s\n", p.Labels["app"], outcome(r.evict(ctx, object{core.Pods.Def, p.Namespace, p.Name}, nil)))
		}
	}
	r.stdout = b.String()
	return nil
}
