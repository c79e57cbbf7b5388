package machine

import (
	"fmt"

	"github.com/droverhq/drover"
)

// program shows how far the body of a run is.
func (s *State) program(p *Plan) *drover.ProgramView {
	g := s.Program
	if g == nil {
		return nil
	}
	names := map[DriveState]string{
		DriveQueued: "queued", DriveRunning: "driving", DriveParked: "parked", DrivePausing: "pausing", DriveBlocked: "blocked", DriveOver: "over",
	}
	return &drover.ProgramView{
		Name: p.Definition.Program, Version: g.Version, Generation: g.Generation, Drive: g.Drive, State: names[g.State],
		Since: moment(g.Since), Records: g.Records, Entries: g.Entries, Instance: g.Instance, Stop: g.Stop,
	}
}

// whyDriven says what a program is waiting for, besides its nodes.
func (s *State) whyDriven(p *Plan) []drover.Reason {
	g := s.Program
	r := drover.Reason{Waiting: "drive", On: string(DriveFunction(p.Definition.Program, g.Version)), Since: spell(g.Since), Until: spell(g.Due)}
	switch g.State {
	case DriveQueued:
		r.Text = fmt.Sprintf("drive %d waits for a process that serves program %s", g.Drive, p.Definition.Program)
		if g.Keep != "" {
			r.Text = fmt.Sprintf("drive %d waits for the process that has the body in memory, and is looked for at %s", g.Drive, r.Until)
		} else if g.Version != "" {
			r.Text += fmt.Sprintf(" in version %s, or in any once nobody has served that for %s", g.Version, p.versionWait())
			if g.Missed > 0 && g.Heard >= g.Looks-1 {
				r.Text += "; nobody serves it now"
			}
		}
	case DriveRunning:
		r.Text = fmt.Sprintf("drive %d is under way at %s, which has to say something by %s", g.Drive, g.Instance, r.Until)
		if g.direct() && g.Quiet < directLooks {
			r.Text = fmt.Sprintf("drive %d is under way at %s, which is looked for if it says nothing by %s", g.Drive, g.Instance, r.Until)
		}
	case DrivePausing:
		r.Text = fmt.Sprintf("drive %d failed: %s; the next one comes at %s", g.Drive, g.Trouble, r.Until)
	case DriveBlocked:
		r.Text = "the body does not fit the journal: mend it, then send a tick; " + g.Trouble
	case DriveParked, DriveOver:
		return nil
	}
	if g.Idle > 1 && g.State != DriveBlocked {
		r.Text += "; " + s.without(p)
	}
	if g.Stop != nil {
		r.Text += fmt.Sprintf("; it was asked to stop: %s", *g.Stop)
	}
	return []drover.Reason{r}
}

// without counts the drives of which nothing has come.
func (s *State) without(p *Plan) string {
	return fmt.Sprintf("%s of at most %d without progress", counted(s.Program.Idle, "drive"), p.maxDrives())
}
