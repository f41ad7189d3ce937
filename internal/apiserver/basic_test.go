package apiserver

import (
	"net/http"
	"strings"
	"testing"
)

const cm = `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"one"},"data":{"a":"b"}}`

func TestObjectsAreCreatedReadChangedAndDeleted(t *testing.T) {
	f := newFixture(t)
	path := "/api/v1/namespaces/default/configmaps"
	created := f.must(http.StatusCreated, "POST", path, cm)
	if !strings.HasPrefix(created, `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"one","namespace":"default","uid":"`) {
		t.Errorf("create: got %s", created)
	}
	if got := f.must(http.StatusOK, "GET", path+"/one", ""); got != created {
		t.Errorf("get: got %s, want what create answered: %s", got, created)
	}
	list := f.must(http.StatusOK, "GET", path, "")
	if !strings.Contains(list, `"items":[{"metadata":{"name":"one"`) {
		t.Errorf("list: got %s", list)
	}
	updated := f.must(http.StatusOK, "PUT", path+"/one", strings.Replace(created, `"a":"b"`, `"a":"c"`, 1))
	if !strings.Contains(updated, `"a":"c"`) {
		t.Errorf("update: got %s", updated)
	}
	if got := f.must(http.StatusConflict, "PUT", path+"/one", created); !strings.Contains(got, "the object has been modified; please apply your changes to the latest version and try again") {
		t.Errorf("stale update: got %s", got)
	}
	patched := f.must(http.StatusOK, "PATCH", path+"/one", `{"data":{"d":"e"}}`, "Content-Type: application/merge-patch+json")
	if !strings.Contains(patched, `"data":{"a":"c","d":"e"}`) {
		t.Errorf("patch: got %s", patched)
	}
	gone := f.must(http.StatusOK, "DELETE", path+"/one", "")
	if !strings.Contains(gone, `"status":"Success"`) {
		t.Errorf("delete: got %s", gone)
	}
	f.must(http.StatusNotFound, "GET", path+"/one", "")
}
