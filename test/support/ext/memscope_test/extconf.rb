# frozen_string_literal: true

require "mkmf"
require_relative "../../../../ext/memscope/record_structs"

$CPPFLAGS << " -D_GNU_SOURCE"
$CFLAGS << " -std=gnu11 -fvisibility=hidden -Wall -Wextra -Wshadow -Wno-unused-parameter"
$warnflags = ""

# For marks.c, which contains a file of the gem.
memscope = File.expand_path("../../../../ext/memscope", __dir__)
$INCFLAGS << " -I#{memscope} -I#{memscope}/engine"
%w[rb_objspace_each_objects rb_objspace_marked_object_p rb_gc_object_metadata rb_obj_gc_flags].each { have_func(_1) }
RecordStructs.write(Dir.pwd)
create_header
create_makefile("memscope_test")
