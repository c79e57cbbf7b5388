package machine

import (
	"strconv"
	"time"

	"github.com/droverhq/drover"
)

// Program is what a run knows of the body that it drives: how far the journal
// has come, and who drives it. What the body asked for outside of its process
// are nodes of the run, each in a slot that is used again when it is over.
type Program struct {
	Generation int        `json:"g,omitempty"`  // how often the body began anew with an empty journal
	Records    int        `json:"r,omitempty"`  // entries of the body, in this journal
	Entries    int        `json:"e,omitempty"`  // all of them
	Segments   []int      `json:"s,omitempty"`  // the number of the first entry of each of the latest segments in the values bucket
	Pages      []int      `json:"pg,omitempty"` // the same of each page there, which lists maxSegments older ones
	Tail       []Line     `json:"t,omitempty"`  // the entries after those
	TailSize   int        `json:"z,omitempty"`  // bytes, more or less
	Slots      []Slot     `json:"o,omitempty"`  // by the index of the node
	Drive      int        `json:"d,omitempty"`  // the latest
	Fence      int        `json:"f,omitempty"`  // of who drives; 0: nobody has begun yet
	State      DriveState `json:"w"`
	Since      Millis     `json:"b,omitempty"`  // driving: since when; else: since when it waits
	Due        Millis     `json:"u,omitempty"`  // when something happens to the drive by itself; 0: never
	Instance   string     `json:"i,omitempty"`  // who drives, or drove last
	Keep       string     `json:"k,omitempty"`  // the inbox of a process that has the body in memory
	Known      int        `json:"n,omitempty"`  // entries that it knows
	Version    string     `json:"v,omitempty"`  // of the program, that has recorded, and that the run keeps while somebody serves it
	Idle       int        `json:"l,omitempty"`  // drives since the journal grew
	Failed     int        `json:"x,omitempty"`  // drives that panicked, in a row
	Spent      Millis     `json:"c,omitempty"`  // that the body has computed, in drives that are over
	Limit      Millis     `json:"m,omitempty"`  // driving: when its compute_timeout is used up; 0: never
	Trouble    string     `json:"y,omitempty"`  // pausing, blocked: what the last drive said of itself
	Stop       *string    `json:"h,omitempty"`  // why it was asked to stop
	Misfit     bool       `json:"mf,omitempty"` // it was blocked when it was asked to, and nothing was recorded since
	Acted      bool       `json:"ac,omitempty"` // its body did something, in this journal, that may have to be undone
	Late       bool       `json:"a,omitempty"`  // it was asked because its time was up
	Looks      int        `json:"p,omitempty"`  // how often a process was looked for that this drive waits for
	Quiet      int        `json:"qu,omitempty"` // how often since the process said something
	Heard      int        `json:"aa,omitempty"` // the latest look at which nobody was found; those up to it count no more
	Missed     int        `json:"q,omitempty"`  // how many in a row found nobody, up to that one
	Stored     bool       `json:"st,omitempty"` // this journal may have values in the bucket
	Began      uint64     `json:"sq,omitempty"` // the command that began this journal; 0: the start
	Inherited  []uint64   `json:"in,omitempty"` // sequences of deliveries that it began with, whose payloads are in the bucket
	Letter     uint64     `json:"j,omitempty"`  // the command that ended the run, as its body broke each time
}

// DriveState is what a run does with its body, as one letter.
type DriveState string

// The states of a drive.
const (
	DriveQueued  DriveState = "q" // a process is asked for
	DriveRunning DriveState = "r" // a process drives
	DriveParked  DriveState = "p" // the body waits for what its nodes give
	DrivePausing DriveState = "w" // a drive failed, and the next one comes at Due
	DriveBlocked DriveState = "b" // the body does not fit the journal
	DriveOver    DriveState = "o"
)

// Line is an entry of the journal as a record, or a segment, has it.
type Line struct {
	Kind    drover.EntryKind `json:"k"`
	ID      string           `json:"i,omitempty"`
	Attempt int              `json:"a,omitempty"`
	Step    string           `json:"s,omitempty"` // JSON of the Step
	Output  Value            `json:"o,omitzero"`
	Error   *drover.Error    `json:"x,omitempty"`
	Pause   Millis           `json:"p,omitempty"`
	Started Millis           `json:"b,omitempty"`
	At      Millis           `json:"t"`
}

// Slot is a place for a node.
type Slot struct {
	ID    string `json:"i,omitempty"` // "": it is free
	Step  string `json:"s,omitempty"` // JSON of the Step
	Input Value  `json:"v,omitzero"`
	Pause int    `json:"p,omitempty"` // it is the pause before this attempt of a step
	Older int    `json:"g,omitempty"` // how often the body has begun anew since
}

// taken reports whether somebody has the slot.
func (slot *Slot) taken() bool { return slot.ID != "" }

// The limits of a program.
const (
	maxTailLines = 128
	maxTailBytes = 16 << 10
	maxSegments  = 256     // of a page, and as many are in the record
	maxSlots     = 1000    // nodes that are open at a time
	maxHeld      = 9000    // slots, with those of hooks that are held, and of children whose start may be owed
	maxEntries   = 100_000 // of one journal
	maxAnswer    = 512 << 10
	maxStep      = 64 << 10 // bytes of what the body says of a node
)

// How long things may take that nobody else watches.
const (
	driveLease   = 30 * time.Second // silence of who drives
	driveLook    = 12 * time.Second // of who was asked directly, before it is looked for: more than from one heartbeat to the next
	lookAgain    = 6 * time.Second  // from one of these looks to the next: more than it takes to connect anew
	directLooks  = 3                // until the lease is over
	directMisses = 2                // in a row: one may have met a process that was just connecting
	versionWait  = time.Minute      // for a process that serves the version of the run, where none is there
	versionLooks = 3                // in that time
	rarestLook   = 2 * time.Minute  // between two of those, where somebody was there for long
	oftenestLook = 2 * time.Second  // more than a look takes
	stopGrace    = time.Minute      // for a body whose time is up to undo what it did
	queuedLooks  = 4                // where somebody was there, after which the queue may have lost the drive
	driveAgain   = 5 * time.Minute  // after which the queue may have lost a drive of no version; doubling
	usualDrives  = 100
	driveRetries = 3
)

// driveNode stands for the node in the ids of drives.
const driveNode drover.NodeID = "_drive"

// driveID is the id of a drive, as a call.
func (s *State) driveID(drive int) drover.CallID {
	return drover.CallID{Run: s.Run, Node: driveNode, Item: drover.NoItem, Attempt: drive}
}

// DriveFunction is the name of the function whose calls are drives of a program:
// of any version, or of one.
func DriveFunction(program, version string) drover.FunctionName {
	name := "program." + program
	if version != "" {
		name += "." + version
	}
	return drover.FunctionName(name)
}

// drive asks a process for the next drive, unless one is under way. The effect
// comes at the end of the fold, with all that the fold has written.
func (f *fold) drive() {
	g := f.s.Program
	if f.s.Terminal() || g.State == DriveQueued || g.State == DriveRunning || g.State == DriveOver {
		return
	}
	if most := f.p.maxDrives(); g.Idle >= most {
		f.poisoned(f.noProgress(most))
		return
	}
	f.changed = true
	g.Drive++
	g.Idle++
	g.Fence, g.State, g.Since, g.Looks = 0, DriveQueued, f.now, 0
	f.watch()
}

// driveEffect is the effect that asks for a drive.
func (f *fold) driveEffect() Effect {
	g := f.s.Program
	id := f.s.driveID(g.Drive)
	token := f.token(id.String())
	e := Effect{
		Owed: Owed{Kind: EffectDrive, Attempt: g.Drive}, Run: f.s.Run, Inbox: g.Keep, Value: f.s.Input,
		Call: &Call{ID: id, Function: DriveFunction(f.p.Definition.Program, g.Version), Token: token},
		Drive: &drover.DriveRequest{
			RunID: f.s.Run, Program: f.p.Definition.Program, Version: g.Version, Drive: g.Drive, Token: token,
			Generation: g.Generation, Seed: f.seed(), Records: g.Records, Entries: g.Entries, Stop: g.Stop, Last: f.lastDrive(), Tags: f.s.Tags, Started: f.s.Created.Time(),
		},
	}
	if f.s.Parent != nil {
		call := f.s.Parent.Call
		e.Drive.Parent = &call
	}
	if g.Keep != "" {
		e.Drive.From = g.Known + 1
	}
	e.Drive.Journal, e.Drive.Partial = g.inline(max(e.Drive.From, 1))
	if g.Keep == "" && g.Looks > 0 { // whoever was asked before may be late, and record as long as nobody else does
		e.Drive.Journal, e.Drive.Partial, e.Again = nil, true, true
	}
	return e
}

// seed is what all that is random in the body comes from: the same in every
// drive, and another once the body has begun anew.
func (f *fold) seed() string {
	const digits = 32
	return f.token("seed/" + strconv.Itoa(f.s.Program.Generation))[:digits]
}

// inline gives the entries from a number on, where all of them are in the record
// with their values. Otherwise they are partial.
func (g *Program) inline(from int) (list []drover.Entry, partial bool) {
	first := g.Entries - len(g.Tail) + 1
	if from < first {
		return nil, true
	}
	for i := from - first; i < len(g.Tail); i++ {
		if g.Tail[i].Output.Key != "" {
			return nil, true
		}
		list = append(list, g.Tail[i].Entry(first+i, g.Tail[i].Output.JSON))
	}
	return list, false
}

// Entry is the line as processes see it, with its number and its output.
func (l *Line) Entry(number int, output []byte) drover.Entry {
	e := drover.Entry{
		Number: number, Kind: l.Kind, ID: l.ID, Attempt: l.Attempt, Output: output, Error: l.Error,
		Pause: drover.Duration(time.Duration(l.Pause) * time.Millisecond), Started: moment(l.Started), At: moment(l.At),
	}
	if l.Step != "" {
		e.Step = []byte(l.Step)
	}
	return e
}
