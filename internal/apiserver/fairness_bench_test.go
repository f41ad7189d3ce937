package apiserver

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/task"
)

// people are told apart by the header From, and are in groups as people are.
func people(o *Options) {
	o.Authenticator = authenticator.RequestFunc(func(r *http.Request) (*authenticator.Response, bool, error) {
		return &authenticator.Response{User: &user.DefaultInfo{Name: r.Header.Get("From"), Groups: []string{"team-a", "team-b", user.AllAuthenticated}}}, true, nil
	})
}

// withMaps stores so many config maps of 1 KB.
func withMaps(b *testing.B, n int) *fixture {
	f := newFixture(b, people)
	maps := client.For(f.As(admin, "filler"), core.ConfigMaps)
	for i := range n {
		_, err := maps.Create(b.Context(), &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprint("m", i)}, Data: map[string]string{"a": fmt.Sprintf("%01000d", i)},
		})
		if err != nil {
			b.Fatal(err)
		}
	}
	return f
}

func askedBy(ctx context.Context, from, path string) *http.Request {
	r := httptest.NewRequestWithContext(ctx, "GET", path, nil)
	r.Header.Set("From", from)
	return r
}

// BenchmarkGetOfAUser is what one request costs that nobody holds up, by one at a time and by many.
func BenchmarkGetOfAUser(b *testing.B) {
	f := withMaps(b, 1)
	b.Run("one", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			f.serve(b, askedBy(b.Context(), "jane", mapsPath+"/m0"), 200)
		}
	})
	b.Run("many", func(b *testing.B) {
		b.ReportAllocs()
		b.SetParallelism(16)
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				f.serve(b, askedBy(b.Context(), "jane", mapsPath+"/m0"), 200)
			}
		})
	})
}

// BenchmarkFlood is how long the slowest hundredth of one user's requests take, alone and while another user
// lists a thousand objects again and again, by 200 requests at a time.
func BenchmarkFlood(b *testing.B) {
	f := withMaps(b, 1000)
	slowest := func() time.Duration {
		took := make([]time.Duration, 2000)
		for i := range took {
			began := time.Now()
			f.serve(b, askedBy(b.Context(), "jane", mapsPath+"/m0"), 200)
			took[i] = time.Since(began)
			if err := task.Sleep(b.Context(), 200*time.Microsecond); err != nil { // as people do, and the flood gets the processors
				b.Fatal(err)
			}
		}
		slices.Sort(took)
		return took[len(took)*99/100]
	}
	for b.Loop() {
		alone := slowest()
		ctx, end := context.WithCancel(b.Context())
		var wg sync.WaitGroup
		for range 200 {
			wg.Go(func() {
				for ctx.Err() == nil {
					w := httptest.NewRecorder()
					f.Handler().ServeHTTP(w, askedBy(ctx, "eve", mapsPath))
					if w.Code == http.StatusTooManyRequests {
						_ = task.Sleep(ctx, time.Second) // as it was told; the loop looks whether it is over
					}
				}
			})
		}
		flooded := slowest()
		end()
		wg.Wait()
		b.ReportMetric(float64(alone.Microseconds()), "alone-p99-µs")
		b.ReportMetric(float64(flooded.Microseconds()), "flooded-p99-µs")
	}
}
