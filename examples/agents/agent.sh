#!/bin/sh
# A stand-in for an agent. A real one would send "system_prompt" and "message"
# to the "model" of its input; this one looks only at "session_id", which holds
# the run, the node and the attempt: wf_<run>_<node>[#<item>]@r<attempt>.
set -eu

session=$(tr -d '\n' | sed -n 's/.*"session_id" *: *"\([^"]*\)".*/\1/p')
item=${session##*#}
item=${item%%@*}

case $session in
*_outline@*)
	echo '{"sections": ["Weather", "Harbour", "Markets"], "tone": "dry"}'
	;;
*_draft#*)
	echo "{\"section\": $item, \"headline\": \"Nothing happened, number $((item + 1))\"}"
	;;
*_critique@*)
	echo '{"verdict": "Short, and true."}'
	;;
*_final@*)
	echo 'Nothing happened, three times. It was short, and it was true.'
	;;
*)
	echo "nobody taught this agent the session \"$session\"" >&2
	exit 65
	;;
esac
