#!/bin/sh
# list, count and top, with nothing but sh, sed, tr, sort and awk.
set -eu
export LC_ALL=C

# What went wrong is the last line on standard error; 65 says that the input is
# at fault, so that Drover does not try again.
bad_input() {
	echo "$1" >&2
	exit 65
}

# list: {"folder": "..."} or null -> {"folder": "...", "files": ["..."]}
list() {
	folder=$(tr -d '\n' | sed -n 's/.*"folder" *: *"\([^"]*\)".*/\1/p')
	if [ -z "$folder" ]; then
		folder=/usr/share/common-licenses
		[ -d "$folder" ] || folder=$PWD/texts
	fi
	[ -d "$folder" ] || bad_input "there is no folder $folder"
	for file in "$folder"/*; do
		# A link would be counted twice, and a name that needs escapes is no text of ours.
		if [ -f "$file" ] && [ ! -L "$file" ]; then
			echo "${file##*/}"
		fi
	done | grep -v '["\\[:cntrl:]]' | awk -v folder="$folder" '
		{ files = files sep "\"" $0 "\""; sep = "," }
		END { printf "{\"folder\":\"%s\",\"files\":[%s]}\n", folder, files }'
}

# count: "path" -> {"all_words": 12, "counts": {"the": 3}}
count() {
	path=$(sed 's/^"//; s/"$//')
	[ -r "$path" ] || bad_input "$path cannot be read"
	tr 'A-Z' 'a-z' <"$path" | tr -cs 'a-z' '\n' | awk '
		length > 0 { n[$0]++; all++ }
		END {
			printf "{\"all_words\":%d,\"counts\":{", all
			for (w in n) { printf "%s\"%s\":%d", sep, w, n[w]; sep = "," }
			print "}}"
		}'
}

# top: [{"all_words": 12, "counts": {...}}] -> {"all_words": 99, "most_common": [{"word": "the", "count": 9}]}
top() {
	tr '{},[]' '\n\n\n\n\n' | tr -d ' "' | awk -F: '
		$1 == "all_words" { all += $2 }
		$1 ~ /^[a-z]+$/ && $2 > 0 { n[$1] += $2 }
		END { print all + 0, ""; for (w in n) print n[w], w }' | sort -k1,1nr -k2,2 | awk '
		NF == 1 { all = $1; next }
		shown < 10 { list = list sep "{\"word\":\"" $2 "\",\"count\":" $1 "}"; sep = ","; shown++ }
		END { printf "{\"all_words\":%d,\"most_common\":[%s]}\n", all, list }'
}

case ${1-} in
list | count | top) "$1" ;;
*) bad_input "usage: functions.sh list|count|top" ;;
esac
