# frozen_string_literal: true

require_relative "../../../test_helper"
require_relative "../../../support/diagnosed"

# The rules of the allocator's settings, which lint judges.
class DoctorSettingsRulesTest < MemscopeTest
  include Diagnosed

  finds(
    idle_allocator: [:warning, 128, { problems: { idle_allocator: {} } }],
    preload_without_effect: [:warning, nil, { problems: { preload_without_effect: {} } }],
    invalid_settings: [:warning, nil, { problems: { invalid_value: {} } }],
    harmful_settings: [:warning, nil, { problems: { debugging: {} } }],
    too_many_arenas: [:info, nil, { problems: { too_many_arenas: { severity: :info,
                                                                   replacement: "MALLOC_CONF=narenas:2" } } }],
    crashing_profiler: [:warning, nil, { problems: { crashing_profiler: {} } }]
  )

  # Whoever sets MALLOC_CONF under glibc is told without --settings.
  def test_settings_that_nobody_here_reads
    %i[invalid_value misspelt_variable ignored_environment other_allocator].each do |id|
      assert_found(:warning, :invalid_settings, problems: { id => {} })
    end
  end

  def test_when_the_remedies_of_settings_take_effect
    ruby = { background_thread: { replacement: "Memscope.tune(background_thread: true)" } }
    setting = { debugging: { replacement: "MALLOC_CONF=junk:false" } }

    { ruby => "takes effect immediately", setting => "requires a restart",
      { **ruby, **setting } => "requires a restart, except for the Ruby code" }.each do |problems, cost|
      assert_equal cost, assert_found(:warning, :harmful_settings, problems: problems).remedy_cost
    end
  end

  def test_what_lint_says_is_pasted
    found = finding(diagnose(problems: { debugging: { text: "junk:true", replacement: "MALLOC_CONF=a:b" },
                                         never_returned: { text: "for ever", replacement: "MALLOC_CONF=a:b" } }),
                    :harmful_settings)

    assert_equal ["junk:true", "MALLOC_CONF=a:b"], [found.title, found.remedy]
    assert_match(/\Afor ever\. .*--settings/, found.explanation)
  end
end
