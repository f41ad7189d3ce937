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
//
// An answer that goes on for long, as a watch does, can have a [Lane]: when the
// HTTP/2 server has sent its beginning, Conn.run asks for more whenever there is
// some, and writes it as frames of its own between those of the server. So what
// all lanes of a connection have is sent by one goroutine and one system call:
//
//	Source, Source, ... -> lanes.fill: DATA frames, behind what the server wrote
//	                         |  Conn.run, by turns of the lanes
//	                         v
//	                       tls.Conn.Write, as above
//
// Invariants, cited by number in the code:
//
//	H1 Frames of lanes come between two of the server's, never within one or within a header block.
//	H2 What the server and the lanes may send together is what the client lets the connection send, or less.
//	H3 A stream with a lane is sent nothing by the lane before all that the handler wrote, nor after its end.
//	H4 A lane that waits for its client holds up no other, and its source is not asked meanwhile.
//	H5 Neither the server nor the lanes may have more than half of the connection's window to themselves.
package h2
