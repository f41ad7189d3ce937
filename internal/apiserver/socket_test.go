package apiserver

import (
	"crypto/tls"
	"encoding/json"
	"io"
	"strings"
	"testing"

	"golang.org/x/net/websocket"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// socket opens a WebSocket at a path, as a page of a browser does. protocols are those that it knows.
func (f *fixture) socket(t *testing.T, path, accept string, protocols ...string) *websocket.Conn {
	t.Helper()
	c, err := websocket.NewConfig("wss"+strings.TrimPrefix(f.url(), "https")+path, "https://ui.example.com")
	if err != nil {
		t.Fatal(err)
	}
	c.TlsConfig, c.Protocol = &tls.Config{InsecureSkipVerify: true}, protocols
	c.Header.Set("Accept", accept)
	conn, err := websocket.DialConfig(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

func TestPagesInBrowsersWatchByMessages(t *testing.T) {
	f := newFixture(t)
	f.must(201, "POST", mapsPath, cm)
	conn := f.socket(t, mapsPath+"?watch=1", "application/json", "base64.binary.k8s.io")
	for _, want := range []string{"ADDED one", "ADDED two", "DELETED two"} {
		var text string
		if err := websocket.Message.Receive(conn, &text); err != nil {
			t.Fatal(err)
		}
		var got struct {
			Type   string
			Object metav1.PartialObjectMetadata
		}
		if err := json.Unmarshal([]byte(text), &got); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if event := got.Type + " " + got.Object.Name; event != want {
			t.Errorf("got %s, want %s", event, want)
		}
		switch want {
		case "ADDED one":
			f.must(201, "POST", mapsPath, strings.Replace(cm, "one", "two", 1))
		case "ADDED two":
			f.must(200, "DELETE", mapsPath+"/two", "")
		}
	}

	binary := f.socket(t, mapsPath+"?watch=1&timeoutSeconds=1", "application/vnd.kubernetes.protobuf", "binary.k8s.io", "other")
	var event []byte
	if err := websocket.Message.Receive(binary, &event); err != nil {
		t.Fatal(err)
	}
	var got metav1.WatchEvent
	if err := got.Unmarshal(event); err != nil || got.Type != "ADDED" {
		t.Errorf("got %q, %v; want a WatchEvent in protobuf", event, err)
	}
	if err := websocket.Message.Receive(binary, &event); err != io.EOF {
		t.Errorf("when the time of a watch was up: got %v, want the end", err)
	}

	var text string
	if err := websocket.Message.Receive(f.socket(t, mapsPath+"?watch=1&resourceVersion=999999999&timeoutSeconds=1", "application/json"), &text); err != io.EOF {
		t.Errorf("a watch that begins later: got %q, %v", text, err)
	}
}
