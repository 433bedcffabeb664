# frozen_string_literal: true

require_relative "../../test_helper"
require_relative "../../support/compiled"
require_relative "../../support/malloc_info_xml"

class EngineGlibcInfoTest < MemscopeTest
  def readings
    program = Compiled.program("engine/malloc/glibc_info_figures.c",
                               engine: %w[malloc/glibc_info.c base/scratch.c base/descriptors.c base/status.c
                                          base/text_file.c base/mapped_array.c base/record.c],
                               arguments: ["-pthread"])
    result = ChildProcess.run_command(program, env: { "MALLOC_ARENA_MAX" => "17" })
    [MallocInfoXML.new(result.out.lines[...-1].join), result.json]
  end

  def test_every_number_of_every_arena_is_in_the_xml
    skip_under_sanitizer
    xml, read = readings

    assert_operator xml.heaps.size, :>=, 16
    assert_equal xml.heaps, read["arenas"]
    assert_equal({ "index" => -1, **xml.totals }, read["totals"])
    assert_operator read["totals"]["total mmap size"], :>=, 9_000_000
    assert_operator xml.heaps.sum { |heap| heap["sizes"].size }, :>, 20
  end
end
