// Package inotify tells that something in a directory may have changed, and follows a file.
package inotify
