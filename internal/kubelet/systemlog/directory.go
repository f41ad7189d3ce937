package systemlog

import (
	"net/http"
	"os"
)

// Directory serves the files of a directory, and lists of them. What a link leads
// to outside of the directory is not served: containers may write there.
func Directory(dir string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		root, err := os.OpenRoot(dir)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		defer root.Close()
		http.FileServerFS(root.FS()).ServeHTTP(w, r)
	})
}
