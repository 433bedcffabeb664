# frozen_string_literal: true

require "mkmf"

$CPPFLAGS << " -D_GNU_SOURCE"
$CFLAGS << " -std=gnu11 -fvisibility=hidden -Wall -Wextra -Wshadow -Wno-unused-parameter"
$warnflags = ""
create_makefile("memscope_test")
