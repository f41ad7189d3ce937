package kubelet

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/kubelet/fakecri"
)

func TestPodsAnnotationsSayTheirBandwidth(t *testing.T) {
	for _, tc := range []struct{ name, receive, send, want string }{
		{"both", "10M", "1500k", "10000000 1500000"},
		{"one", "", "1G", "0 1000000000"},
		{"none", "", "", "0 0"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				var told []Connection
				fails := errors.New("the link is gone")
				n := &testNode{t: t, api: newMemAPI(t), cri: fakecri.New(fakecri.Options{}), with: func(o *Options) {
					o.Network.Connected = func(_ context.Context, c Connection) error {
						told = append(told, c)
						if len(told) == 1 {
							return fails
						}
						return nil
					}
				}}
				n.run()
				defer func() { n.end() }()
				pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", Annotations: map[string]string{}}}
				for name, value := range map[string]string{"kubernetes.io/ingress-bandwidth": tc.receive, "kubernetes.io/egress-bandwidth": tc.send} {
					if value != "" {
						pod.Annotations[name] = value
					}
				}
				pod.Spec = v1.PodSpec{NodeName: "n1", Containers: []v1.Container{{Name: "web", Image: "web"}}}
				if _, err := pods(n.api).Create(t.Context(), pod); err != nil {
					t.Fatal(err)
				}
				p := n.after(time.Minute, "web")
				if !core.PodReady(p) || n.sandboxes() != 1 {
					t.Errorf("after a sandbox that could not be connected: got %+v, %d sandboxes, want ready, in one", p.Status, n.sandboxes())
				}
				if len(told) != 2 || told[0].Sandbox == told[1].Sandbox {
					t.Fatalf("told %+v, want of two sandboxes", told)
				}
				for _, c := range told {
					if got := fmt.Sprint(c.Receive, c.Send); got != tc.want || len(c.IPs) != 1 || c.Sandbox == "" {
						t.Errorf("got %+v, want a sandbox with an address and %s", c, tc.want)
					}
				}
			})
		})
	}
}
