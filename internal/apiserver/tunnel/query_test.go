package tunnel

import (
	"net/url"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

func TestQueryFillsOptions(t *testing.T) {
	q, err := url.ParseQuery("container=c&follow=true&previous=0&timestamps&tailLines=5&sinceTime=2026-01-02T03:04:05Z&unknown=1")
	if err != nil {
		t.Fatal(err)
	}
	var o corev1.PodLogOptions
	if err := decodeQuery(q, &o); err != nil {
		t.Fatal(err)
	}
	if o.Container != "c" || !o.Follow || o.Previous || !o.Timestamps || o.TailLines == nil || *o.TailLines != 5 {
		t.Errorf("got %+v of %s", o, q.Encode())
	}
	if want := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC); o.SinceTime == nil || !o.SinceTime.Time.Equal(want) {
		t.Errorf("got %v, want %v", o.SinceTime, want)
	}
	var e corev1.PodExecOptions
	if err := decodeQuery(url.Values{"command": {"sh", "-c", "x y"}, "stdin": {"false"}, "tty": {"1"}}, &e); err != nil {
		t.Fatal(err)
	}
	if len(e.Command) != 3 || e.Command[2] != "x y" || e.Stdin || !e.TTY {
		t.Errorf("got %+v", e)
	}
	var p corev1.PodPortForwardOptions
	if err := decodeQuery(url.Values{"ports": {"80", "443"}}, &p); err != nil || len(p.Ports) != 2 || p.Ports[1] != 443 {
		t.Errorf("got %+v, %v", p, err)
	}
}

func TestMalformedQueryNamesTheParameter(t *testing.T) {
	for _, q := range []string{"tailLines=many", "sinceTime=yesterday"} {
		values, err := url.ParseQuery(q)
		if err != nil {
			t.Fatal(err)
		}
		if err := decodeQuery(values, &corev1.PodLogOptions{}); err == nil {
			t.Errorf("%s was taken", q)
		}
	}
}
