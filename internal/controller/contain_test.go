package controller_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/controller"
	"github.com/kemudi/kemudi/internal/resource"
)

func TestControllerThatFailsStopsNoOtherAndBeginsAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		var seen log
		named := func(name string, setup func(), keys func()) *controller.Controller {
			s := spec(func(*controller.Kit, controller.Client[*corev1.ConfigMap]) reconcileFunc {
				setup()
				return func(_ context.Context, cm *corev1.ConfigMap) (controller.Next, error) {
					seen.add("%s:%s", name, cm.Name)
					return controller.Done, nil
				}
			})
			s.Name = name
			s.Watches = []controller.Watch{{Def: core.Secrets.Def, Keys: func(_ *controller.Kit, obj resource.Object) []string {
				keys()
				return []string{"default/" + obj.GetName()}
			}}}
			return controller.New(s)
		}
		tries, runs, well := 0, 0, func() {}
		all := []*controller.Controller{
			named("well", well, well),
			named("late", func() {
				if tries++; tries < 3 {
					panic("not yet")
				}
			}, well),
			named("blind", well, func() { panic("what is this?") }),
			controller.NewCustom(controller.Custom{Name: "custom", Run: func(ctx context.Context, _ *controller.Kit) error {
				if runs++; runs < 3 {
					return errors.New("no luck")
				}
				<-ctx.Done()
				return nil
			}}),
		}
		b.put("a", nil)
		b.background("controllers", func(ctx context.Context) error { return controller.RunAll(ctx, all, b.env()) })
		time.Sleep(10 * time.Second)
		seen.taken()
		b.set("a", "k", "v")
		synctest.Wait()
		got := slices.Sorted(slices.Values(seen.taken()))
		if want := "blind:a late:a well:a"; strings.Join(got, " ") != want {
			t.Errorf("after all have begun: got %q, want %q", got, want)
		}
		if _, err := client.For(b.as("test"), core.Secrets).Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a"}}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		got = slices.Sorted(slices.Values(seen.taken()))
		if want := "late:a well:a"; strings.Join(got, " ") != want { // the other cannot say what it is about
			t.Errorf("after a change that one panics at: got %q, want %q", got, want)
		}
		if runs != 3 {
			t.Errorf("a controller that failed twice was begun %d times, want 3", runs)
		}
		for _, want := range []string{"panic: not yet", "panic: what is this?", "no luck"} {
			if !strings.Contains(b.log.String(), want) {
				t.Errorf("the log does not say %q", want)
			}
		}
	})
}
