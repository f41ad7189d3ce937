// Package h2 serves HTTP/2 over TLS with few system calls.
//
// The HTTP/2 server writes frame by frame: each frame of 16 KiB with its head of
// 9 bytes would become two TLS records, and each record a system call, made by a
// goroutine of its own. Here [Conn] takes the frames as they come, and one
// goroutine of the connection encrypts and sends what has gathered:
//
//	HTTP/2 server -> Conn.Write: plain bytes gather
//	                   |  Conn.run, whenever there are some
//	                   v
//	                 tls.Conn.Write: full records -> socket.Write: records gather
//	                   |  Conn.run, when all are written
//	                   v
//	                 one system call
//
// It never waits for more to come: what gathers is what was written while the
// last burst was on its way, or before the goroutine's turn had come.
//
// What comes in passes as it is, but for the client's window updates: they are
// added up until there is something to tell ([Conn.Read], credit).
package h2
