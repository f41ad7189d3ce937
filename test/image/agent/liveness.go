package main

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"
)

// liveness is healthy for ten seconds, and has paths that misbehave on request.
func liveness([]string) int {
	fail("%v", http.ListenAndServe(":8080", livenessHandler(time.Now())))
	return 1
}

func livenessHandler(started time.Time) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/started", func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, time.Since(started).String())
	})
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, r *http.Request) {
		if age := time.Since(started).Seconds(); age > 10 {
			w.WriteHeader(http.StatusInternalServerError)
			fmt.Fprintf(w, "error: %v", age)
			return
		}
		io.WriteString(w, "ok")
	})
	mux.HandleFunc("/redirect", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, r.URL.Query().Get("loc"), http.StatusFound)
	})
	mux.HandleFunc("/disconnect-headers", func(w http.ResponseWriter, r *http.Request) { disconnect(w) })
	mux.HandleFunc("/sleep-headers", misbehave(func(w http.ResponseWriter, p misbehaviour) {
		time.Sleep(p.sleep)
		w.WriteHeader(p.code)
		fmt.Fprintf(w, "Slept for %d secs\n", int(p.sleep.Seconds()))
		writeBody(w, p.size, 0)
	}))
	mux.HandleFunc("/sleep-body", misbehave(func(w http.ResponseWriter, p misbehaviour) {
		w.WriteHeader(p.code)
		writeBody(w, p.size, p.interval)
		fmt.Fprintf(w, "Sleeping for %d secs\n", int(p.sleep.Seconds()))
		flush(w)
		time.Sleep(p.sleep)
		fmt.Fprintf(w, "Slept for %d secs\n", int(p.sleep.Seconds()))
	}))
	mux.HandleFunc("/disconnect-body", misbehave(func(w http.ResponseWriter, p misbehaviour) {
		w.WriteHeader(p.code)
		writeBody(w, p.size, 0)
		io.WriteString(w, "Disconnecting\n")
		flush(w)
		disconnect(w)
	}))
	mux.HandleFunc("/slow-response", misbehave(func(w http.ResponseWriter, p misbehaviour) {
		w.WriteHeader(p.code)
		writeBody(w, p.size, p.interval)
	}))
	return mux
}

// misbehaviour is what a request asks for.
type misbehaviour struct {
	code            int           // status, default 500
	sleep, interval time.Duration // parameters time and interval, in seconds
	size            int           // kilobytes of body
}

func misbehave(do func(http.ResponseWriter, misbehaviour)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		p := misbehaviour{code: http.StatusInternalServerError}
		for name, set := range map[string]func(int){
			"code":     func(n int) { p.code = n },
			"time":     func(n int) { p.sleep = time.Duration(n) * time.Second },
			"interval": func(n int) { p.interval = time.Duration(n) * time.Second },
			"size":     func(n int) { p.size = n },
		} {
			text := r.URL.Query().Get(name)
			if text == "" {
				continue
			}
			n, err := strconv.Atoi(text)
			if err != nil {
				http.Error(w, fmt.Sprintf("parameter '%s' is invalid: %v", name, err), http.StatusBadRequest)
				return
			}
			set(n)
		}
		do(w, p)
	}
}

func writeBody(w http.ResponseWriter, kilobytes int, interval time.Duration) {
	for range kilobytes {
		if interval > 0 {
			flush(w)
			time.Sleep(interval)
		}
		for range 64 {
			fmt.Fprintf(w, "%16x", rand.Uint64())
		}
	}
}

func flush(w http.ResponseWriter) { http.NewResponseController(w).Flush() }

func disconnect(w http.ResponseWriter) {
	c, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		fmt.Fprintf(w, "Forcible disconnection failed: %v", err)
		return
	}
	c.Close()
}
